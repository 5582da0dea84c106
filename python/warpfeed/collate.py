"""Ready-made functions for ``Loader(..., collate=f)`` that convert batches to the forms that other
libraries expect.

Boxes are converted from the format that their field :class:`warpfeed.Boxes` specifies. To pass
other arguments, use ``functools.partial``::

    collate = functools.partial(warpfeed.collate.detection_targets, first_class=1)
    loader = warpfeed.Loader(data, fields={"boxes": warpfeed.Boxes(100, {"class": "i64"})}, collate=collate)
"""

from __future__ import annotations

from typing import Any

from ._error import ConfigError
from ._fields import Boxes, DenseMap, Image, Mask

__all__ = ["detection_targets", "hf", "trim", "yolo_targets"]


def detection_targets(
    batch: Any, *, boxes: str = "boxes", first_class: int = 0, include_crowd: bool = False
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Returns images and targets for torchvision's detection models: ``loss = model(images,
    targets)``.

    Each target is a dict of arrays on the device of the batch. For a sample with n boxes, it
    contains:

    - ``boxes``, f32 of shape (n, 4): the left, upper, right and lower edge of each box, in pixels;
    - ``labels``, i64 of shape (n,);
    - ``valid``, a bool: False for padding and for replacements of skipped samples;
    - if the :class:`Boxes` field delivers them, ``masks`` of shape (n, H, W), ``keypoints`` of
      shape (n, K, 3), ``iscrowd``, i64 of shape (n,), and ``area`` of shape (n,);
    - if the loader has a field ``image_id``, its value, i64.

    If the :class:`Boxes` field has the column ``crowd``, boxes that COCO marks as crowds are left
    out, as in torchvision's reference training. Without this column, crowds are treated as ordinary
    boxes.

    Args:
        boxes: name of the :class:`warpfeed.Boxes` field.
        first_class: number that is added to each class index. torchvision's Faster R-CNN, Mask
            R-CNN and SSD reserve label 0 for the background, so pass 1 if classes begin at 0.
        include_crowd: keeps crowds, for COCO's evaluation.

    Raises:
        ConfigError: if the loader does not have the field, or the field has no column ``class``.
        TypeError: if ``batch`` is not the batch that a loader passes to ``collate``.
    """
    boxes_type = _boxes_type(batch, boxes)
    height, width = batch.image_size
    columns = {"masks": "masks", "keypoints": "points", "iscrowd": "crowd", "area": "area"}
    counts, valid = _to_ints(batch[f"{boxes}.count"]), batch.valid
    targets = []
    for sample, count in enumerate(counts):
        retained_rows = _retained_rows(batch, boxes, sample, count, include_crowd)
        rows = _convert_boxes(batch[boxes][sample, :count], boxes_type, (height, width), "xyxy", False)
        target = {
            "boxes": rows[retained_rows],
            "labels": _as_i64(batch[f"{boxes}.class"][sample, :count])[retained_rows] + first_class,
            "valid": valid[sample],
        }
        for name, column in columns.items():
            if f"{boxes}.{column}" in batch:
                values = batch[f"{boxes}.{column}"][sample, :count][retained_rows]
                target[name] = _as_i64(values) if column == "crowd" else values
        if "image_id" in batch:
            target["image_id"] = _as_i64(batch["image_id"][sample])
        targets.append(target)
    return list(_channels_first(batch)), targets


def yolo_targets(batch: Any, *, boxes: str = "boxes", include_crowd: bool = False) -> tuple[Any, Any]:
    """Returns the images, and an array with the boxes of all images, f32 of shape (M, 6).

    A row consists of the position of the image in the batch, the class, and the center x, center y,
    width and height of the box, as fractions of the image's size. Samples that are not valid, such
    as the padding of a last batch, have no boxes. ``boxes`` and ``include_crowd`` have the same
    meaning as for :func:`detection_targets`.

    Raises:
        ConfigError, TypeError: as for :func:`detection_targets`.
    """
    boxes_type = _boxes_type(batch, boxes)
    rows, class_rows = batch[boxes], batch[f"{boxes}.class"]
    counts = _to_ints(batch[f"{boxes}.count"])
    counts = [count if valid else 0 for count, valid in zip(counts, batch._valid_list(), strict=True)]
    rows = _convert_boxes(rows, boxes_type, batch.image_size, "cxcywh", True)
    row_blocks = []
    for sample, count in enumerate(counts):
        retained_rows = _retained_rows(batch, boxes, sample, count, include_crowd)
        sample_rows = rows[sample, :count][retained_rows]
        classes = _as_f32(class_rows[sample, :count][retained_rows])[:, None]
        row_blocks.append(_concat([_full_like(sample_rows[:, :1], sample), classes, sample_rows], 1))
    return _channels_first(batch), _concat(row_blocks, 0)


def trim(batch: Any, *, multiple: int = 32) -> Any:
    """Removes the padding that all images of a batch have in common on the right and at the bottom,
    for ``Augment.pad_to``.

    Images, masks and dense maps, including the masks of boxes, are reduced to the maximum height
    and the maximum width of the images without padding. Both are rounded up to a multiple of
    ``multiple``, up to the original size. The results are views of the batch, so nothing is copied,
    except that relative boxes become fractions of the reduced image. Boxes and keypoints in pixels
    do not change.

    Raises:
        ConfigError: if the batch has no images; if it has a second field of type
            :class:`warpfeed.Image`, which may be larger; if ``batch_transform`` has removed a
            field; or if ``multiple`` is not positive.
    """
    if multiple < 1:
        raise ConfigError(f"trim: multiple={multiple}: expected at least 1")
    if "image" not in batch:
        raise ConfigError("trim: the loader has no field 'image'")
    field_axes: dict[str, tuple[int, int]] = {"image": batch.image_axes}
    relative_boxes = []
    for name, kind in batch.field_types.items():
        if isinstance(kind, Image) and name != "image":
            raise ConfigError(
                f"trim: fields={{{name!r}: Image(...)}} is a second image, whose content could be cut off, because "
                "only the size of the first image is known; leave the second image out, or trim in your own collate "
                "function"
            )
        # Annotations of a clip have an additional axis for the frames.
        clip = int(getattr(kind, "frames", None) is not None)
        if isinstance(kind, Mask):
            field_axes[name] = (1 + clip, 2 + clip)
        elif isinstance(kind, DenseMap):
            height, width = (1, 2) if kind.channels is None else batch._delivery.image_axes
            field_axes[name] = (height + clip, width + clip)
        elif isinstance(kind, Boxes):
            if kind.masks:
                field_axes[f"{name}.masks"] = (2 + clip, 3 + clip)
            if kind.out_relative:
                relative_boxes.append(name)
    missing_name = next((name for name in (*field_axes, *relative_boxes) if name not in batch), None)
    if missing_name is not None:
        raise ConfigError(f"trim: the batch has no field {missing_name!r}; batch_transform must keep it")
    rects, old_size = batch._image_rects(), batch.image_size
    max_lengths = [max(rect[axis] + rect[axis + 2] for rect in rects) for axis in (1, 0)]
    size = [slice(0, -(-length // multiple) * multiple) for length in max_lengths]
    for name, (first, _) in field_axes.items():
        batch[name] = batch[name][(slice(None),) * first + tuple(size)]
    scale_y, scale_x = (old / new for old, new in zip(old_size, batch.image_size, strict=True))
    for name in relative_boxes:
        rows = batch[name]
        batch[name] = _stack([rows[..., axis] * (scale_y if axis % 2 else scale_x) for axis in range(4)])
    return batch


def hf(batch: Any) -> dict[str, Any]:
    """Returns the arguments of Hugging Face's vision models: ``pixel_values`` of shape (N, C, H,
    W), or (N, T, C, H, W) for clips, and ``labels``: the soft labels if the loader delivers them,
    and the class indices otherwise. A batch without labels has only ``pixel_values``.

    Samples that are not valid, such as the padding of a last batch, do not contribute to the loss:
    their class index is -100, and their soft labels are 0."""
    arguments = {"pixel_values": _channels_first(batch)}
    label = next((name for name in ("soft_label", "label") if name in batch), None)
    if label is not None:
        labels = batch[label]
        invalid_samples = [sample for sample, valid in enumerate(batch._valid_list()) if not valid]
        if invalid_samples:
            labels = labels.clone() if hasattr(labels, "clone") else labels.copy()
            labels[invalid_samples] = 0 if label == "soft_label" else -100
        arguments["labels"] = labels
    return arguments


def _boxes_type(batch: Any, name: str) -> Boxes:
    """Returns the type of the :class:`Boxes` field `name`. Raises a ConfigError if there is no such
    field, or if it has no classes."""
    field_types = getattr(batch, "field_types", None)
    if field_types is None:
        raise TypeError(f"batch is a {type(batch).__name__}: expected the batch that a loader passes to collate")
    boxes_type = field_types.get(name)
    if not isinstance(boxes_type, Boxes):
        raise ConfigError(
            f"the loader has no Boxes field {name!r}; add fields={{{name!r}: Boxes(100, {{'class': 'i64'}})}}"
        )
    if f"{name}.class" not in batch:
        raise ConfigError(
            f"the field {name!r} has no column 'class'; "
            f"add fields={{{name!r}: Boxes({boxes_type.max_boxes}, {{'class': 'i64'}})}}"
        )
    return boxes_type


def _retained_rows(batch: Any, boxes: str, sample: int, count: int, include_crowd: bool) -> Any:
    """Returns an index that selects a sample's boxes that are not crowds, or all boxes if
    `include_crowd` is set or the field has no column ``crowd``."""
    if include_crowd or f"{boxes}.crowd" not in batch:
        return slice(None)
    return batch[f"{boxes}.crowd"][sample, :count] == 0


def _channels_first(batch: Any) -> Any:
    """Returns a view of the images with the shape (N, C, H, W), or (N, T, C, H, W) for clips."""
    images = batch["image"]
    last = images.ndim - 1
    if batch.image_axes == (last - 1, last):
        return images
    axes = (*range(last - 2), last, last - 2, last - 1)
    return images.permute(*axes) if hasattr(images, "permute") else images.transpose(*axes)


def _convert_boxes(rows: Any, boxes_type: Boxes, size: tuple[int, int], to: str, to_relative: bool) -> Any:
    """Converts boxes from the format of `boxes_type` to the format `to`. With `to_relative`, the
    results are fractions of the image size (height, width)."""
    if (boxes_type.out_format, boxes_type.out_relative) == (to, to_relative):
        return rows
    height, width = size
    scale_x, scale_y = 1.0, 1.0
    if boxes_type.out_relative and not to_relative:
        scale_x, scale_y = float(width), float(height)
    elif to_relative and not boxes_type.out_relative:
        scale_x, scale_y = 1.0 / width, 1.0 / height
    a, b, c, d = (rows[..., axis] for axis in range(4))
    if boxes_type.out_format == "xywh":
        c, d = a + c, b + d
    elif boxes_type.out_format == "cxcywh":
        a, b, c, d = a - c / 2, b - d / 2, a + c / 2, b + d / 2
    if to == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    return _stack([a * scale_x, b * scale_y, c * scale_x, d * scale_y])


def _is_torch(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _to_ints(counts: Any) -> list[int]:
    return [int(count) for count in counts.tolist()]


def _as_i64(array: Any) -> Any:
    return array.long() if _is_torch(array) else array.astype("int64")


def _as_f32(array: Any) -> Any:
    return array.float() if _is_torch(array) else array.astype("float32")


def _full_like(array: Any, value: float) -> Any:
    return array.new_full(array.shape, value) if _is_torch(array) else array * 0 + value


def _stack(arrays: list[Any]) -> Any:
    if _is_torch(arrays[0]):
        import torch

        return torch.stack(arrays, -1)
    import numpy as np

    return np.stack(arrays, -1).astype("float32", copy=False)


def _concat(arrays: Any, axis: int) -> Any:
    if _is_torch(arrays[0]):
        import torch

        return torch.cat(tuple(arrays), axis)
    import numpy as np

    return np.concatenate(arrays, axis)
