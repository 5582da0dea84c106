"""Batches as programs see them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Iterable, SupportsIndex, overload

if TYPE_CHECKING:
    from ._delivery import Delivery

__all__ = ["Batch", "Collated", "FieldBatch"]


#: The fields of a batch that is a pair.
_NAMES = ("image", "label")


class _Facts:
    """Properties that a batch of either form has."""

    _native: Any = None
    _delivery: Delivery | None = None

    @property
    def images(self) -> Any:
        """The images."""
        return self._named("image")

    @property
    def labels(self) -> Any:
        """The labels, (N)."""
        return self._named("label")

    def _named(self, name: str) -> Any:
        fields: Any = self
        try:
            return fields[name]
        except KeyError:
            raise AttributeError(f"the batch has no field {name!r}") from None

    def _known(self) -> Any:
        if self._native is None:
            raise AttributeError("this is a copy of a batch, which has only the fields")
        return self._native

    @property
    def epoch(self) -> int:
        """The epoch."""
        return int(self._known().epoch)

    @property
    def number(self) -> int:
        """Number of the batch in its epoch, from 0."""
        return int(self._known().number)

    @property
    def ids(self) -> list[int]:
        """The number of each sample in the whole dataset, which :meth:`Loader.sample`, ``loader.dataset[id]`` and
        all options take. In place of a skipped sample it is that of its replacement, whose pixels and
        fields are there."""
        return list(self._known().ids())

    @property
    def keys_of_samples(self) -> list[str]:
        """The key of each sample, such as ``n01440764/n01440764_10026``, or of the replacement of a
        skipped sample."""
        return list(self._known().keys())

    @property
    def valid(self) -> Any:
        """Whether each sample counts, (N) bool on the device of the batch: False for padding and for
        replacements of skipped samples. It is a NumPy array without ``output="torch"``.

        ``(scores.argmax(1) == labels)[batch.valid].sum()`` counts each sample of a dataset once, also
        over ranks."""
        counted = self._counted()
        return counted if self._delivery is None else self._delivery.flags(counted)

    def _counted(self) -> list[bool]:
        return list(self._known().valid())

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Height and width of the part of each image that shows its image. A batch that has only
        ``views`` has no such sizes, and raises an AttributeError."""
        return [(height, width) for _, _, width, height in self._shown()]

    def _shown(self) -> list[tuple[int, int, int, int]]:
        """The part (x, y, width, height) of each image that shows its image."""
        known = self._known()
        shown: list[tuple[int, int, int, int]] = list(known.shown())
        if any(valid and not width for (_, _, width, _), valid in zip(shown, known.valid(), strict=True)):
            raise AttributeError(
                "sizes and images describe the image that augment makes, and the loader has none. For views they are "
                "not known: add that image with fields={'image': Image()}"
            )
        return shown

    @property
    def originals(self) -> list[Any]:
        """The part of each image that shows its image, as views of the images. With ``Augment.own_size``
        these are the images in their own sizes."""
        shown, images = self._shown(), self._images()
        if images is None or self._delivery is None:
            raise AttributeError("the batch has no field 'image'")
        views, first = [], self._delivery.image_axes == (1, 2)
        for image, (x, y, width, height) in zip(images, shown, strict=True):
            rows, columns = slice(y, y + height), slice(x, x + width)
            views.append(image[rows, columns] if first else image[:, rows, columns])
        return views

    def _images(self) -> Any:
        raise NotImplementedError

    @property
    def mixing(self) -> tuple[float, tuple[int, int, int, int] | None] | None:
        """The weight of a sample itself and the rectangle (x, y, width, height) of CutMix; None for
        a batch that was not mixed."""
        mixing: tuple[float, tuple[int, int, int, int] | None] | None = self._known().mixing()
        return mixing


class _Noted:
    """Properties of a batch, without the batch."""

    def __init__(self, native: Any) -> None:
        self.epoch, self.number = native.epoch, native.number
        noted = {"ids": native.ids(), "keys": native.keys(), "valid": native.valid(), "mixing": native.mixing()}
        noted["shown"] = native.shown()
        for name, value in noted.items():
            setattr(self, name, lambda value=value: value)


def facts_of(native: Any) -> Any:
    """Returns the native batch for its properties, or a copy of these if all fields were copied, so
    that the batch keeps no slot."""
    return _Noted(native) if native.copied else native


class Batch(_Facts, tuple[Any, ...]):
    """A batch of images and labels: ``images, labels = batch``. ``batch["image"]`` and ``batch["label"]``
    are the same, as in a batch with more fields."""

    def __new__(cls, fields: Iterable[Any] = (), native: Any = None, delivery: Delivery | None = None) -> Batch:
        made = super().__new__(cls, fields)
        made._native, made._delivery = native, delivery
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (tuple(self),)

    @overload
    def __getitem__(self, at: SupportsIndex | str, /) -> Any: ...
    @overload
    def __getitem__(self, at: slice, /) -> tuple[Any, ...]: ...
    def __getitem__(self, at: SupportsIndex | str | slice, /) -> Any:
        if isinstance(at, str):
            if at not in _NAMES:
                raise KeyError(f"{at!r}: this batch has the fields 'image' and 'label'")
            at = _NAMES.index(at)
        return super().__getitem__(at)

    def _images(self) -> Any:
        return self[0]


class FieldBatch(_Facts, dict[str, Any]):
    """A batch with fields besides images and labels, by name. ``batch.images`` and ``batch.labels`` are
    ``batch["image"]`` and ``batch["label"]``, as in a batch of only these two."""

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
        # The error for labels or images that are missing in the dataset. It is a copy, because the
        # frames of an exception that was raised hold this batch.
        raise KeyError(name) if absent is None else copy.copy(absent)

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


class Collated(FieldBatch):
    """The batch as ``collate`` receives it: a dict of all fields, with the facts of the batch.

    Attributes:
        kinds: the option ``fields`` of the loader: kinds by name.
        image_axes: the axes of the images that are the height and the width.
    """

    def __init__(self, fields: Any, native: Any, absent: Any, delivery: Delivery, kinds: Any) -> None:
        super().__init__(fields, native, absent, delivery)
        self.kinds, self.image_axes = dict(kinds), delivery.image_axes

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images."""
        shape = self["image"].shape
        return int(shape[self.image_axes[0]]), int(shape[self.image_axes[1]])
