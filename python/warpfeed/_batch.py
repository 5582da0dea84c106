"""Batches in the form in which users receive them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Iterable, SupportsIndex, overload

from . import _other_names

if TYPE_CHECKING:
    from ._delivery import Delivery

__all__ = ["Batch", "Collated", "FieldBatch"]


#: The fields of a batch that is a pair.
_NAMES = ("image", "label")


class _Facts(_other_names.EarlierNames):
    """Properties that all batches have, whether they are tuples or dicts."""

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
            raise AttributeError("this is a copy of a batch, and copies have only the fields")
        return self._native

    @property
    def epoch(self) -> int:
        """The epoch."""
        return int(self._known().epoch)

    @property
    def number(self) -> int:
        """Index of the batch within its epoch, starting at 0."""
        return int(self._known().number)

    @property
    def ids(self) -> list[int]:
        """The index of each sample in the whole dataset, as used by :meth:`Loader.sample`,
        ``loader.dataset[id]`` and the options of the loader. If a sample was skipped, this is the
        index of its replacement."""
        return list(self._known().ids())

    @property
    def keys_of_samples(self) -> list[str]:
        """The key of each sample, such as ``n01440764/n01440764_10026``. If a sample was skipped, this is the key of
        its replacement."""
        return list(self._known().keys())

    @property
    def valid(self) -> Any:
        """Whether each sample is valid, (N) bool on the device of the batch. False for padding and
        for replacements of skipped samples. Without ``output="torch"``, this is a NumPy array.

        ``(scores.argmax(1) == labels)[batch.valid].sum()`` counts each sample of a dataset exactly
        once, even across ranks."""
        counted = self._counted()
        return counted if self._delivery is None else self._delivery.flags(counted)

    def _counted(self) -> list[bool]:
        return list(self._known().valid())

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Height and width of each image, excluding its padding.

        Raises:
            AttributeError: for a batch that has only ``views``.
        """
        return [(height, width) for _, _, width, height in self._shown()]

    def _shown(self) -> list[tuple[int, int, int, int]]:
        """The rectangle (x, y, width, height) of each image without its padding."""
        known = self._known()
        shown: list[tuple[int, int, int, int]] = list(known.shown())
        if any(valid and not width for (_, _, width, _), valid in zip(shown, known.valid(), strict=True)):
            raise AttributeError(
                "sizes and unpadded describe the image of augment, and this loader has only views; add the image with "
                "fields={'image': Image()}"
            )
        return shown

    @property
    def unpadded(self) -> list[Any]:
        """Each image without its padding, as a view of ``images``. With ``Augment.own_size``, each
        image has its own size."""
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
        """The weight of each sample when it is mixed with its partner, and the rectangle (x, y,
        width, height) of CutMix. None for a batch that was not mixed."""
        mixing: tuple[float, tuple[int, int, int, int] | None] | None = self._known().mixing()
        return mixing


class _CopiedFacts:
    """Copies of the properties of a batch, which do not keep the batch alive."""

    def __init__(self, native: Any) -> None:
        self.epoch, self.number = native.epoch, native.number
        facts = {"ids": native.ids(), "keys": native.keys(), "valid": native.valid(), "mixing": native.mixing()}
        facts["shown"] = native.shown()
        for name, value in facts.items():
            setattr(self, name, lambda value=value: value)


def facts_of(native: Any) -> Any:
    """Returns an object with the properties of the batch. If all fields were copied, this is a copy
    of the properties, so that the batch does not occupy a slot. Otherwise it is the native
    batch."""
    return _CopiedFacts(native) if native.copied else native


class Batch(_Facts, tuple[Any, ...]):
    """A batch of images and labels: ``images, labels = batch``. The fields can also be accessed by
    name, as ``batch["image"]`` and ``batch["label"]``, like in a batch with more fields."""

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
    """A batch with further fields, which is a dict of fields by name. ``batch.images`` and
    ``batch.labels`` equal ``batch["image"]`` and ``batch["label"]``, as in a batch that contains
    only images and labels."""

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
        # The error for labels or images that the dataset lacks. Raise a copy, because the
        # traceback's frames of a raised exception reference this batch.
        raise KeyError(name) if absent is None else copy.copy(absent)

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


class Collated(FieldBatch):
    """The batch as ``collate`` receives it: a dict of all fields, with the properties of the batch.

    Attributes:
        field_types: field types by name, from the loader's option ``fields``.
        image_axes: indices of the height and width axes of the images.
    """

    def __init__(self, fields: Any, native: Any, absent: Any, delivery: Delivery, field_types: Any) -> None:
        super().__init__(fields, native, absent, delivery)
        self.field_types, self.image_axes = dict(field_types), delivery.image_axes

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images."""
        shape = self["image"].shape
        return int(shape[self.image_axes[0]]), int(shape[self.image_axes[1]])
