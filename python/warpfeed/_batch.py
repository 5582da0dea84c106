"""The batch types."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Iterable, SupportsIndex, overload

from . import _other_names

if TYPE_CHECKING:
    from ._delivery import Delivery

__all__ = ["Batch", "Collated", "FieldBatch"]


_PAIR = ("image", "label")


class _BatchProperties(_other_names.EarlierNames):
    _native: Any = None
    _delivery: Delivery | None = None

    @property
    def images(self) -> Any:
        """The images."""
        return self._field("image")

    @property
    def labels(self) -> Any:
        """The labels, of shape (N,)."""
        return self._field("label")

    def _field(self, name: str) -> Any:
        fields: Any = self
        try:
            return fields[name]
        except KeyError:
            raise AttributeError(f"the batch has no field {name!r}") from None

    def _require_native(self) -> Any:
        if self._native is None:
            raise AttributeError("a copy of a batch has only its fields; read other properties from the original batch")
        return self._native

    @property
    def epoch(self) -> int:
        """The epoch that the batch belongs to."""
        return int(self._require_native().epoch)

    @property
    def batch_index(self) -> int:
        """Index of the batch within its epoch, starting at 0."""
        return int(self._require_native().batch_index)

    @property
    def ids(self) -> list[int]:
        """The index of each sample within the whole dataset, as in ``loader.dataset[index]``,
        :meth:`Loader.sample` and the options of the loader. If a sample was skipped, this is the
        index of its replacement."""
        return list(self._require_native().ids())

    @property
    def sample_keys(self) -> list[str]:
        """The key of each sample, such as ``n01440764/n01440764_10026``. If a sample was skipped,
        this is the key of its replacement."""
        return list(self._require_native().sample_keys())

    @property
    def valid(self) -> Any:
        """Whether each sample is valid, as a bool array of shape (N,): False for padding and for
        replacements of skipped samples. With ``output="torch"``, this is a tensor on the device of
        the batch; otherwise it is a NumPy array.

        ``(scores.argmax(1) == labels)[batch.valid].sum()`` counts the correct predictions of a
        batch, without padding and replacements."""
        valid = self._valid_list()
        return valid if self._delivery is None else self._delivery.flags(valid)

    def _valid_list(self) -> list[bool]:
        return list(self._require_native().valid())

    @property
    def image_sizes(self) -> list[tuple[int, int]]:
        """Height and width of each image, excluding padding.

        Raises:
            AttributeError: if the loader has no field ``image``, or if the batch is a copy.
        """
        return [(height, width) for _, _, width, height in self._image_rects()]

    def _image_rects(self) -> list[tuple[int, int, int, int]]:
        """The part of each image that is not padding: (x, y, width, height)."""
        native = self._require_native()
        rects: list[tuple[int, int, int, int]] = list(native.image_rects())
        if any(valid and not width for (_, _, width, _), valid in zip(rects, native.valid(), strict=True)):
            raise AttributeError(
                "image_sizes and unpadded_images describe the field 'image', which this loader does not have; add it "
                "with fields={'image': Image()}"
            )
        return rects

    @property
    def unpadded_images(self) -> list[Any]:
        """Each image with its padding cropped off, without a copy. With ``Augment.pad_to``, these
        images have different sizes.

        Raises:
            AttributeError: if the batch has no field ``image``, or is a copy.
        """
        rects, images = self._image_rects(), self._images()
        if images is None or self._delivery is None:
            raise AttributeError("the batch has no field 'image'")
        views, channels_last = [], self._delivery.image_axes == (1, 2)
        for image, (x, y, width, height) in zip(images, rects, strict=True):
            rows, columns = slice(y, y + height), slice(x, x + width)
            # `...` covers the axis for the frames of a clip.
            views.append(image[..., rows, columns, :] if channels_last else image[..., rows, columns])
        return views

    def _images(self) -> Any:
        raise NotImplementedError

    @property
    def mixing(self) -> tuple[float, tuple[int, int, int, int] | None] | None:
        """``(weight, rectangle)`` of a batch that was mixed, or None. ``weight`` is the share of
        each sample in its own mixture. The other sample of the mixture, the sample's partner in
        :class:`Mix`, has ``1 - weight``. The rectangle (x, y, width, height) is the area that
        CutMix copies from the partner; it is None for MixUp."""
        mixing: tuple[float, tuple[int, int, int, int] | None] | None = self._require_native().mixing()
        return mixing


class _CopiedProperties:
    """A copy of a native batch's properties. The copy does not keep the batch alive."""

    def __init__(self, native: Any) -> None:
        self.epoch, self.batch_index = native.epoch, native.batch_index
        for method in ("ids", "sample_keys", "valid", "mixing", "image_rects"):
            value = getattr(native, method)()
            setattr(self, method, lambda value=value: value)


def properties_of(native: Any) -> Any:
    """Returns an object with the properties of the batch. This object is `native` itself, unless
    all fields were copied. In that case, it is a copy of the properties, so that the loader can
    reuse the batch's memory."""
    return _CopiedProperties(native) if native.copied else native


class Batch(_BatchProperties, tuple[Any, ...]):
    """A batch of images and labels: ``images, labels = batch``. As with a :class:`FieldBatch`, you
    can also access the fields by name: ``batch["image"]`` and ``batch["label"]``."""

    def __new__(cls, fields: Iterable[Any] = (), native: Any = None, delivery: Delivery | None = None) -> Batch:
        batch = super().__new__(cls, fields)
        batch._native, batch._delivery = native, delivery
        return batch

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (tuple(self),)

    @overload
    def __getitem__(self, key: SupportsIndex | str, /) -> Any: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[Any, ...]: ...
    def __getitem__(self, key: SupportsIndex | str | slice, /) -> Any:
        if isinstance(key, str):
            if key not in _PAIR:
                raise KeyError(f"{key!r}: this batch has the fields 'image' and 'label'")
            key = _PAIR.index(key)
        return super().__getitem__(key)

    def _images(self) -> Any:
        return self[0]


class FieldBatch(_BatchProperties, dict[str, Any]):
    """A dict of fields by name: the batch of a loader whose fields are not exactly ``image`` and
    ``label``. As with a :class:`Batch`, ``batch.images`` is ``batch["image"]`` and ``batch.labels``
    is ``batch["label"]``."""

    def __init__(
        self, fields: Any = (), native: Any = None, absent: Any = None, delivery: Delivery | None = None
    ) -> None:
        super().__init__(fields)
        self._native, self._delivery = native, delivery
        self._absent: dict[str, Exception] = absent or {}

    def _images(self) -> Any:
        return self.get("image")

    def __missing__(self, name: str) -> Any:
        absent = self._absent.get(name)
        # Raise a copy: the traceback of the stored exception would reference this batch, a cycle.
        raise KeyError(name) if absent is None else copy.copy(absent)

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


class Collated(FieldBatch):
    """The batch that ``collate`` receives: a dict of all fields, with properties such as ``epoch``
    and ``ids``.

    Attributes:
        field_types: field types by name, as passed to the loader's ``fields`` option.
        image_axes: indices of the height axis and the width axis of the images.
    """

    def __init__(self, fields: Any, native: Any, absent: Any, delivery: Delivery, field_types: Any) -> None:
        super().__init__(fields, native, absent, delivery)
        self.field_types = dict(field_types)
        height, width = delivery.image_axes
        # Clips have an additional axis for the frames.
        clip = int(getattr(self.field_types.get("image"), "frames", None) is not None)
        self.image_axes = (height + clip, width + clip)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images."""
        shape = self["image"].shape
        return int(shape[self.image_axes[0]]), int(shape[self.image_axes[1]])
