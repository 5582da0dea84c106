"""The ``output``, ``device``, ``layout`` and ``copy`` options: the form in which batches are
delivered."""

from __future__ import annotations

import sys
from typing import Any

from . import _ranks, _warpfeed
from ._error import ConfigError
from ._options import is_flag, one_of
from ._types import Device

OPTIONS = ("output", "device", "layout", "copy")

_LAYOUTS = {"nhwc": "nhwc", "nchw": "nchw", "channels_last": "channels_last", "contiguous_format": "nchw"}

#: DLPack's device type for CUDA (``kDLCUDA``).
_DLPACK_CUDA = 2


def _torch() -> Any:
    """Returns the ``torch`` module, or None if it cannot be imported."""
    try:
        import torch
    except ImportError:
        return None
    return torch


class Delivery:
    """Converts the fields of native batches to arrays for the user."""

    def __init__(self, output: str | None, device: Device | None, layout: Any, copy: bool | None) -> None:
        is_output_given = output is not None
        # Import torch only if `output` may be torch, because the import takes seconds and half a
        # gigabyte of memory.
        output = output or ("torch" if _torch() is not None else "numpy")
        one_of("output", output, ("torch", "numpy", "dlpack"))
        if output == "torch" and _torch() is None:
            raise ConfigError("output='torch': torch cannot be imported; install it, or pass output='numpy'")
        #: Index of the CUDA device; None for host memory.
        self.device = _device_index(device)
        if self.device is not None and output == "numpy":
            reason = (
                "supports only host memory" if is_output_given else "is the default, because torch is not installed"
            )
            raise ConfigError(f"device={device!r}: output='numpy' {reason}; use output='torch' or 'dlpack'")
        name = str(("channels_last" if output == "torch" else "nhwc") if layout is None else layout)
        self._layout = _LAYOUTS.get(name.removeprefix("torch."))
        if self._layout is None:
            raise ConfigError(
                f"layout={layout!r}: expected one of 'channels_last', 'nhwc', 'nchw', or a torch memory format"
            )
        self._output, self._copy = output, copy

    @property
    def is_torch(self) -> bool:
        return self._output == "torch"

    @property
    def layout(self) -> str:
        """Returns the layout in the form that the extension module expects."""
        return "nchw" if self._layout == "nchw" else "nhwc"

    @property
    def image_axes(self) -> tuple[int, int]:
        """Returns the indices of the height axis and the width axis in a batch of images."""
        return (1, 2) if self._layout == "nhwc" else (2, 3)

    def stream(self) -> int:
        """Returns the handle of torch's current stream on the device. Returns 0, the default
        stream, for host batches, and if the output is not torch or torch has no CUDA."""
        torch = _torch() if self.device is not None and self._output == "torch" else None
        if torch is None or not torch.cuda.is_available():
            return 0
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def native(self) -> tuple[bool | None, int | None, int]:
        """Returns the ``delivery`` argument of the native loader and decoder."""
        return None if self._copy is None else bool(self._copy), self.device, self.stream()

    def field(self, batch: _warpfeed.Batch, name: str, is_image: bool) -> Any:
        channels_last = is_image and self._layout == "channels_last"
        if self._output == "torch":
            return _to_torch(batch, name, channels_last)
        if self._output == "numpy":
            return _to_numpy(batch, name, channels_last)
        return batch.tensor(name, channels_last, own=True)

    def flags(self, flags: list[bool]) -> Any:
        """Converts one flag per sample to an array on the device of the batch."""
        if self._output != "torch":
            import numpy as np

            return np.array(flags, bool)
        torch = _torch()
        device = "cpu" if self.device is None else f"cuda:{self.device}"
        if all(flags):
            return torch.ones(len(flags), dtype=torch.bool, device=device)
        return torch.tensor(flags).to(device, non_blocking=True)

    def stored_image(self, height: int, width: int, pixels: bytearray) -> Any:
        """Converts pixels to an array (height, width, 3), or to a torch tensor (3, height,
        width)."""
        import numpy as np

        image = np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
        return image if self._output != "torch" else _torch().from_numpy(image).permute(2, 0, 1).contiguous()


def _device_index(device: Device | None) -> int | None:
    """Returns the index of the CUDA device that the ``device`` option selects, or None for host
    memory."""
    if device is None:
        return None
    if isinstance(device, int) and not is_flag(device):
        if device < 0:
            raise ConfigError(f"device={device}: expected 'cpu', 'cuda', or a device index of 0 or more")
        return device
    kind, _, index = str(device).partition(":")
    if kind == "cpu":
        return None
    if kind != "cuda" or (index and not index.isdigit()):
        raise ConfigError(f"device={device!r}: expected 'cpu', 'cuda', 'cuda:1', an index, a torch.device or None")
    if index:
        return int(index)
    module = sys.modules.get("torch")
    if module is not None and module.cuda.is_available():
        return int(module.cuda.current_device())
    return _ranks.local_rank() or 0


def _to_torch(batch: _warpfeed.Batch, name: str, channels_last: bool) -> Any:
    torch = _torch()
    field = batch.tensor(name, channels_last)
    kind, device = field.__dlpack_device__()
    stream = None
    if kind == _DLPACK_CUDA:
        # Creating the capsule makes the current stream wait for the batch, without blocking the
        # host. DLPack denotes the default stream by 1.
        stream = int(torch.cuda.current_stream(device).cuda_stream) or 1
    tensor = torch.utils.dlpack.from_dlpack(field.__dlpack__(stream=stream))
    return tensor.clone() if batch.clone_wanted(field.nbytes) else tensor


def _to_numpy(batch: _warpfeed.Batch, name: str, channels_last: bool) -> Any:
    import numpy as np

    field = batch.tensor(name, channels_last)
    array = np.asarray(field)
    if field.dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            # NumPy has no bfloat16, so deliver the bits as an integer array.
            return array
        return array.view(ml_dtypes.bfloat16)
    return array
