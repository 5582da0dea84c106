"""Ready-made functions for ``Loader(..., collate=f)``, which convert batches to the forms that
other libraries expect.

Each function takes the batch of a loader, a dict of fields with the properties of the batch. Boxes are
converted from the format of their field :class:`warpfeed.Boxes`. Use ``functools.partial`` for other arguments::

    collate = functools.partial(warpfeed.collate.detection_targets, first_class=1)
    loader = warpfeed.Loader(data, fields={"boxes": warpfeed.Boxes(100, {"class": "i64"})}, collate=collate)
"""

from __future__ import annotations

from typing import Any

from ._error import ConfigError
from ._fields import Boxes, DenseMap, Image, Mask

__all__ = ["detection_targets", "hf", "trim", "yolo_targets"]


def detection_targets(
    batch: Any, *, boxes: str = "boxes", first_class: int = 0, crowd: bool = False
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Returns images and targets for torchvision's detection models: ``loss = model(images, targets)``.

    Each target is a dict with ``boxes``, (n, 4) f32 as left, upper, right and lower edge in pixels,
    ``labels``, (n) i64, and ``valid``, a scalar bool that is False for samples that do not count. If the loader has
    these columns, a target also has ``masks`` (n, H, W), ``keypoints`` (n, K, 3), ``iscrowd`` (n) i64, ``area`` (n)
    and ``image_id``. n is the number of boxes of the sample, without padding. All values of a target are arrays
    on the device of the batch.

    If the loader has the column ``crowd``, boxes that COCO marks as crowds are left out, as in
    torchvision's reference training. Without this column they are ordinary boxes.

    Args:
        boxes: the name of the field of :class:`warpfeed.Boxes`.
        first_class: number that is added to each class. torchvision's Faster R-CNN, Mask R-CNN and
            SSD reserve label 0 for the background: pass 1 for classes that begin at 0.
        crowd: keeps crowds, for COCO's evaluation.

    Raises:
        ConfigError: if the loader lacks the field, or its column ``class``.
    """
    kind = _boxes_of(batch, boxes)
    height, width = batch.image_size
    columns = {"masks": "masks", "keypoints": "points", "iscrowd": "crowd", "area": "area"}
    counts, valid = _list(batch[f"{boxes}.count"]), batch.valid
    targets = []
    for place, count in enumerate(counts):
        kept = _kept(batch, boxes, place, count, crowd)
        rows = _converted(batch[boxes][place, :count], kind, (height, width), ("xyxy", False))
        target = {
            "boxes": rows[kept],
            "labels": _as_i64(batch[f"{boxes}.class"][place, :count])[kept] + first_class,
            "valid": valid[place],
        }
        for name, column in columns.items():
            if f"{boxes}.{column}" in batch:
                values = batch[f"{boxes}.{column}"][place, :count][kept]
                target[name] = _as_i64(values) if column == "crowd" else values
        if "image_id" in batch:
            target["image_id"] = _as_i64(batch["image_id"][place])
        targets.append(target)
    return list(_channels_first(batch)), targets


def yolo_targets(batch: Any, *, boxes: str = "boxes", crowd: bool = False) -> tuple[Any, Any]:
    """Returns images and one array of all boxes, (M, 6) f32: position of the image in the batch, class,
    center x, center y, width and height, as fractions of the image's size. Samples that are not
    valid, such as the padding of a last batch, have no boxes. ``boxes`` and ``crowd`` are as for
    :func:`detection_targets`.

    Raises:
        ConfigError: as :func:`detection_targets`.
    """
    kind = _boxes_of(batch, boxes)
    rows, of_class = batch[boxes], batch[f"{boxes}.class"]
    counts = _list(batch[f"{boxes}.count"])
    counts = [count if valid else 0 for count, valid in zip(counts, batch._counted(), strict=True)]
    rows = _converted(rows, kind, batch.image_size, ("cxcywh", True))
    parts = []
    for place, count in enumerate(counts):
        kept = _kept(batch, boxes, place, count, crowd)
        own = rows[place, :count][kept]
        classes = _as_f32(of_class[place, :count][kept])[:, None]
        parts.append(_joined([_full_like(own[:, :1], place), classes, own], 1))
    return _channels_first(batch), _joined(parts, 0)


def trim(batch: Any, *, multiple: int = 32) -> Any:
    """Cuts the padding that all images of a batch share, for ``Augment.own_size``.

    The images, and the masks and dense maps that belong to them, are cut to the height and width of
    the largest image without padding, rounded up to a multiple of ``multiple``. They become views
    of the batch, so nothing is copied. Boxes and keypoints in pixels do not change. Boxes as
    fractions become fractions of the cut image.

    Raises:
        ConfigError: for a batch without images; for a second field of type :class:`warpfeed.Image`, which may be
            larger; for a field that ``batch_transform`` removed; and for a multiple that is not positive.
    """
    if multiple < 1:
        raise ConfigError(f"trim: multiple={multiple}: expected at least 1")
    if "image" not in batch:
        raise ConfigError("trim: the loader has no field 'image'")
    axes: dict[str, tuple[int, int]] = {"image": batch.image_axes}
    fractions = []
    for name, kind in batch.field_types.items():
        if isinstance(kind, Image) and name != "image":
            raise ConfigError(
                f"trim: fields={{{name!r}: Image(...)}} is a second image, and its content could be cut off, because "
                "only the sizes of the first one are known; leave it out, or cut the fields in your own collate "
                "function"
            )
        if isinstance(kind, Mask):
            axes[name] = (1, 2)
        elif isinstance(kind, DenseMap):
            axes[name] = (1, 2) if kind.channels is None else batch.image_axes
        elif isinstance(kind, Boxes):
            if kind.masks:
                axes[f"{name}.masks"] = (2, 3)
            if kind.to_relative:
                fractions.append(name)
    missing = next((name for name in (*axes, *fractions) if name not in batch), None)
    if missing is not None:
        raise ConfigError(f"trim: the batch has no field {missing!r}; batch_transform must keep it")
    shown, before = batch._shown(), batch.image_size
    largest = [max(part[axis] + part[axis + 2] for part in shown) for axis in (1, 0)]
    size = [slice(0, -(-length // multiple) * multiple) for length in largest]
    for name, (first, _) in axes.items():
        batch[name] = batch[name][(slice(None),) * first + tuple(size)]
    down, across = (whole / part for whole, part in zip(before, batch.image_size, strict=True))
    for name in fractions:
        rows = batch[name]
        batch[name] = _stacked([rows[..., axis] * (down if axis % 2 else across) for axis in range(4)])
    return batch


def hf(batch: Any) -> dict[str, Any]:
    """Returns the arguments of Hugging Face's vision models: ``pixel_values``, (N, 3, H, W), and ``labels``, which
    are the soft labels if the loader has them, and otherwise the classes. Without labels there are only
    the pixels.

    Samples that are not valid, such as the padding of a last batch, do not contribute to a loss:
    their class is -100, and their soft labels are 0."""
    found = {"pixel_values": _channels_first(batch)}
    label = next((name for name in ("soft_label", "label") if name in batch), None)
    if label is not None:
        labels = batch[label]
        ignored = [place for place, valid in enumerate(batch._counted()) if not valid]
        if ignored:
            labels = labels.clone() if hasattr(labels, "clone") else labels.copy()
            labels[ignored] = 0 if label == "soft_label" else -100
        found["labels"] = labels
    return found


def _boxes_of(batch: Any, name: str) -> Boxes:
    """The field type of the boxes."""
    field_types = getattr(batch, "field_types", None)
    if field_types is None:
        raise TypeError(f"batch is a {type(batch).__name__}: expected the batch that a loader passes to collate")
    kind = field_types.get(name)
    if not isinstance(kind, Boxes):
        raise ConfigError(
            f"the loader has no field {name!r} of boxes; add fields={{{name!r}: Boxes(100, {{'class': 'i64'}})}}"
        )
    if f"{name}.class" not in batch:
        raise ConfigError(
            f"the boxes {name!r} have no column class; add fields={{{name!r}: Boxes({kind.most}, {{'class': 'i64'}})}}"
        )
    return kind


def _kept(batch: Any, boxes: str, place: int, count: int, crowd: bool) -> Any:
    """An index of the boxes of a sample that are not crowds."""
    if crowd or f"{boxes}.crowd" not in batch:
        return slice(None)
    return batch[f"{boxes}.crowd"][place, :count] == 0


def _channels_first(batch: Any) -> Any:
    """The images as (N, 3, H, W), a view."""
    images = batch["image"]
    if batch.image_axes == (2, 3):
        return images
    return images.permute(0, 3, 1, 2) if hasattr(images, "permute") else images.transpose(0, 3, 1, 2)


def _converted(rows: Any, kind: Boxes, size: tuple[int, int], to: tuple[str, bool]) -> Any:
    """Converts boxes of the field type `kind` to the format `to`: the order of the numbers, and whether they are
    fractions."""
    if (kind.to, kind.to_relative) == to:
        return rows
    height, width = size
    across, down = 1.0, 1.0
    if kind.to_relative and not to[1]:
        across, down = float(width), float(height)
    elif to[1] and not kind.to_relative:
        across, down = 1.0 / width, 1.0 / height
    a, b, c, d = (rows[..., axis] for axis in range(4))
    if kind.to == "xywh":
        c, d = a + c, b + d
    elif kind.to == "cxcywh":
        a, b, c, d = a - c / 2, b - d / 2, a + c / 2, b + d / 2
    if to[0] == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    return _stacked([a * across, b * down, c * across, d * down])


def _is_torch(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _list(counts: Any) -> list[int]:
    return [int(count) for count in counts.tolist()]


def _as_i64(array: Any) -> Any:
    return array.long() if _is_torch(array) else array.astype("int64")


def _as_f32(array: Any) -> Any:
    return array.float() if _is_torch(array) else array.astype("float32")


def _full_like(array: Any, value: float) -> Any:
    return array.new_full(array.shape, value) if _is_torch(array) else array * 0 + value


def _stacked(arrays: list[Any]) -> Any:
    if _is_torch(arrays[0]):
        import torch

        return torch.stack(arrays, -1)
    import numpy as np

    return np.stack(arrays, -1).astype("float32", copy=False)


def _joined(arrays: Any, axis: int) -> Any:
    if _is_torch(arrays[0]):
        import torch

        return torch.cat(tuple(arrays), axis)
    import numpy as np

    return np.concatenate(arrays, axis)
