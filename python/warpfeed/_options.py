"""What users write, as the native loader takes it."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Union

from . import _warpfeed
from ._error import WarpfeedError

#: What stands for a file or a folder.
Path = Union[str, "os.PathLike[str]"]

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

_DTYPES = {
    "u8": "u8", "uint8": "u8", "f32": "f32", "float32": "f32", "float": "f32", "f16": "f16", "float16": "f16",
    "half": "f16", "bf16": "bf16", "bfloat16": "bf16", "i64": "i64", "int64": "i64", "long": "i64",
    "i16": "i16", "int16": "i16", "i32": "i32", "int32": "i32", "u16": "u16", "uint16": "u16",
}  # fmt: skip

_LAYOUTS = {
    "nhwc": "nhwc", "nchw": "nchw", "channels_last": "channels_last", "contiguous_format": "nchw",
}  # fmt: skip

# Arguments of torch.utils.data.DataLoader that have no meaning here, with the way out.
_ELSEWHERE = {
    "sampler": "choose samples with shuffle, subset, weights or balanced, or order=f, and ranks with distributed=True",
    "batch_sampler": "set batch_size, and choose samples with shuffle, subset, weights or balanced",
    "collate_fn": "a batch has named fields, written in place; add some with fields={name: Numbers(...) or Rows(...)}",
    "worker_init_fn": "random numbers of a sample depend on (seed, epoch, sample) alone; set seed",
    "generator": "random numbers of a sample depend on (seed, epoch, sample) alone; set seed",
    "multiprocessing_context": "workers are threads of this process",
    "persistent_workers": "workers live as long as the loader, always",
    "prefetch_factor": "set prefetch, in batches; 0 finds it while running",
    "transform": (
        "a Python call for each sample would run under the interpreter's lock and bound all workers by one core; use "
        "augment=Augment..., or transforms=[f] with functions on whole batches, such as torchvision.transforms.v2 on "
        "the device"
    ),
    "target_transform": "map labels of a whole batch with transforms=[f]",
    "codec": "a Python decoder would run under the interpreter's lock; convert the files, or write the codec in Rust",
}  # fmt: skip


def refuse(unknown: dict[str, Any]) -> None:
    """An error for arguments that the loader does not have."""
    for name in unknown:
        if name in _ELSEWHERE:
            raise TypeError(f"Loader has no {name!r}: {_ELSEWHERE[name]}")
        raise TypeError(f"Loader has no argument {name!r}")


def path_text(path: Path) -> str:
    """The text of a path."""
    return os.fspath(path)


def dtype_name(dtype: Any) -> str:
    """The crate's name of an element type: of its own name, NumPy's or torch's."""
    name = getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    if name not in _DTYPES:
        raise ValueError(
            f"dtype={dtype!r}: known are u8, f32, f16, bf16, of fields i16, i32, i64 and u16 too, and torch's and "
            "NumPy's names of these"
        )
    return _DTYPES[name]


def layout_name(layout: Any) -> str:
    """``nhwc``, ``nchw`` or ``channels_last``."""
    name = str(layout).removeprefix("torch.").lower()
    if name not in _LAYOUTS:
        raise ValueError(f"layout={layout!r}: known are 'channels_last', 'nhwc', 'nchw', and torch's memory formats")
    return _LAYOUTS[name]


def ordered(order: Callable[[int], Any]) -> Callable[[int], list[int]]:
    """An order whose epochs are lists of integers, of one that gives arrays or other sequences."""

    def indices(epoch: int) -> list[int]:
        found = order(epoch)
        return [int(i) for i in (found.tolist() if hasattr(found, "tolist") else found)]

    return indices


def normalization(normalize: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel, on a scale of 0 to 1."""
    if isinstance(normalize, str):
        if normalize != "imagenet":
            raise ValueError(
                f"normalize={normalize!r}: known are 'imagenet', 'unit' is the default of floats, or (mean, std)"
            )
        return IMAGENET
    mean, std = normalize
    return tuple(float(x) for x in mean), tuple(float(x) for x in std)


def torch() -> Any:
    """PyTorch, or None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch


def launched() -> tuple[int, int, int | None] | None:
    """Rank, number of ranks, and rank on this machine: of ``torch.distributed`` once it is up, else
    of the launcher's environment."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        local = os.environ.get("LOCAL_RANK")
        return distributed.get_rank(), distributed.get_world_size(), int(local) if local and local.isdigit() else None
    return _warpfeed.rank_from_env()


def ranks(options: dict[str, Any], rank: int | None, world_size: int | None, distributed: bool | None) -> None:
    """Sets the rank: as it is given, or as the launcher has it."""
    if (rank is None) != (world_size is None):
        raise ValueError(f"rank={rank} and world_size={world_size}: set both, or distributed=True")
    if rank is not None:
        if distributed:
            raise ValueError("rank and distributed: each decides on the rank; set one of them")
        options["rank"] = (rank, world_size)
        return
    if distributed is False:
        return
    found = launched() if distributed else _launched_or_none()
    if distributed:
        in_environment = _launched_or_none(environment_only=True)
        if found is None or in_environment == found:
            # The crate shares the processors among the ranks of a machine, and says what it looked for.
            options["distributed"] = True
        else:
            options["rank"] = found[:2]
    elif found is not None and found[1] > 1:
        raise WarpfeedError(
            f"this is rank {found[0]} of {found[1]}: say distributed=True, and each rank gets its share of every "
            "batch, or distributed=False, and each gets all samples",
            "config",
        )


def _launched_or_none(environment_only: bool = False) -> tuple[int, int, int | None] | None:
    try:
        return _warpfeed.rank_from_env() if environment_only else launched()
    except WarpfeedError:
        # Variables of a launcher that are incomplete mean nothing to who did not ask for ranks.
        return None


def cuda_ordinal(device: Any) -> int | None:
    """The number of the CUDA device that ``device`` means; None for host memory."""
    if device is None:
        return None
    if isinstance(device, int):
        return device
    kind, _, number = str(device).partition(":")
    if kind == "cpu":
        return None
    if kind != "cuda" or (number and not number.isdigit()):
        raise ValueError(f"device={device!r}: known are 'cpu', 'cuda', 'cuda:1', a number, a torch.device and None")
    if number:
        return int(number)
    module = sys.modules.get("torch")
    if module is not None and module.cuda.is_available():
        return int(module.cuda.current_device())
    found = _launched_or_none()
    return (found[2] if found is not None else None) or 0


def delivery(output: str | None, device: Any, layout: Any) -> tuple[str, int | None, str]:
    """What tensors are, the number of the device that they are on, and their layout's name."""
    output = output or ("torch" if torch() is not None else "numpy")
    if output not in ("torch", "numpy", "dlpack"):
        raise ValueError(f"output={output!r}: known are 'torch', 'numpy' and 'dlpack'")
    if output == "torch" and torch() is None:
        raise ValueError("output='torch', and torch cannot be imported")
    ordinal = cuda_ordinal(device)
    if ordinal is not None and output == "numpy":
        raise ValueError("output='numpy' is of host memory; with a device use 'torch' or 'dlpack'")
    default = "channels_last" if output == "torch" else "nhwc"
    return output, ordinal, layout_name(default if layout is None else layout)
