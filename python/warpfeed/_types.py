"""Types of options that also accept the types of torch and NumPy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Literal, Protocol, Sequence, Union

if TYPE_CHECKING:
    import numpy as np

    class _TorchDevice(Protocol):
        @property
        def type(self) -> str: ...
        @property
        def index(self) -> int | None: ...

    class _TorchDtype(Protocol):
        @property
        def is_floating_point(self) -> bool: ...
        @property
        def is_signed(self) -> bool: ...

    #: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, the index of a CUDA device, or a ``torch.device``.
    Device = Union[str, int, _TorchDevice]
    #: ``"u8"``, ``"f16"``, ``"bf16"``, ``"f32"`` and so on, or the corresponding torch or NumPy
    #: type.
    Dtype = Union[str, np.dtype[Any], type[Any], _TorchDtype]
    #: ``"imagenet"``, or (mean, std) with a value for each channel.
    Normalize = Union[Literal["imagenet"], Sequence[Iterable[float]], "np.ndarray[Any, Any]"]
    #: A path, or a path and its windows: (wait, warmup, active, repeat).
    Trace = Union[str, os.PathLike[str], tuple[Union[str, os.PathLike[str]], Sequence[int]]]
else:
    # `Any` makes `_options` skip its type check. These options are checked when they are converted.
    Device = Dtype = Normalize = Trace = Any
