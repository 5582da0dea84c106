"""Batches as users see them, and how fields become arrays."""

from __future__ import annotations

from typing import Any, Iterable

from . import _options

__all__ = ["Batch", "FieldBatch"]

#: DLPack's number of CUDA devices.
_CUDA = 2


class _Facts:
    """What a batch knows of itself beside its fields."""

    _native: Any = None

    def _known(self) -> Any:
        if self._native is None:
            raise AttributeError("this is a copy of a batch, which has its fields alone")
        return self._native

    @property
    def epoch(self) -> int:
        """The epoch."""
        return int(self._known().epoch)

    @property
    def number(self) -> int:
        """The number of the batch in its epoch, from 0."""
        return int(self._known().index)

    @property
    def ids(self) -> list[int]:
        """The source index of each sample."""
        return list(self._known().ids())

    @property
    def keys_of_samples(self) -> list[str]:
        """The key of each sample, such as ``n01440764/n01440764_10026``."""
        return list(self._known().keys())

    @property
    def valid(self) -> list[bool]:
        """Whether each sample counts: False for padding and for replacements of skipped samples."""
        return list(self._known().valid())

    @property
    def mixing(self) -> tuple[float, tuple[int, int, int, int] | None] | None:
        """The weight of the own sample and the rectangle (x, y, width, height) of CutMix, if the
        batch was mixed."""
        mixing: tuple[float, tuple[int, int, int, int] | None] | None = self._known().mixing()
        return mixing


class _Noted:
    """What a batch knows of itself, without the batch."""

    def __init__(self, native: Any) -> None:
        self.epoch, self.index = native.epoch, native.index
        noted = {"ids": native.ids(), "keys": native.keys(), "valid": native.valid(), "mixing": native.mixing()}
        for name, value in noted.items():
            setattr(self, name, lambda value=value: value)


def facts_of(native: Any) -> Any:
    """Where a batch has its facts from: from itself, unless all of it was copied, so that it keeps
    no slot."""
    return _Noted(native) if native.copied else native


class Batch(_Facts, tuple[Any, ...]):
    """A batch of images and labels: ``images, labels = batch``."""

    def __new__(cls, fields: Iterable[Any] = (), native: Any = None) -> Batch:
        made = super().__new__(cls, fields)
        made._native = native
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (tuple(self),)

    @property
    def images(self) -> Any:
        """The images."""
        return self[0]

    @property
    def labels(self) -> Any:
        """The labels, (N)."""
        return self[1]


class FieldBatch(_Facts, dict[str, Any]):
    """A batch of other fields than images and labels, by name."""

    def __init__(self, fields: Any = (), native: Any = None, absent: Any = None) -> None:
        super().__init__(fields)
        self._native = native
        self._absent: dict[str, Exception] = absent or {}

    def __missing__(self, name: str) -> Any:
        # Labels that the data set does not have.
        raise self._absent.get(name) or KeyError(name)

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


def to_torch(native: Any, name: str, channels_last: bool) -> Any:
    """The field as a torch tensor, which shares the batch's memory unless that is to be copied."""
    torch = _options.torch()
    field = native.tensor(name, channels_last)
    kind, device = field.__dlpack_device__()
    stream = None
    if kind == _CUDA:
        # The capsule orders the stream that is current here and now; nothing is asked of the host.
        # DLPack's number of the default stream is 1.
        stream = int(torch.cuda.current_stream(device).cuda_stream) or 1
    tensor = torch.utils.dlpack.from_dlpack(field.__dlpack__(stream=stream))
    return tensor.clone() if native.clone_wanted(field.nbytes) else tensor


def to_numpy(native: Any, name: str, channels_last: bool) -> Any:
    """The field as a NumPy array, which shares the batch's memory unless that is to be copied."""
    import numpy as np

    field = native.tensor(name, channels_last)
    array = np.asarray(field)
    if field.dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            # The bits, which NumPy alone has no type for.
            return array
        return array.view(ml_dtypes.bfloat16)
    return array


def to_dlpack(native: Any, name: str, channels_last: bool) -> Any:
    """The field as an object with ``__dlpack__``. It shares the batch's memory unless all fields are
    to be copied."""
    return native.tensor(name, channels_last, own=True)
