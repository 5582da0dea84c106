"""What users write, as the native loader takes it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Union

from . import _warpfeed
from ._checks import is_flag, misspelt
from ._error import ConfigError, WarpfeedError

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


def refuse(unknown: dict[str, Any], known: Iterable[str]) -> None:
    """An error for arguments that the loader does not have."""
    for name in unknown:
        if name in _ELSEWHERE:
            raise TypeError(f"Loader has no {name!r}: {_ELSEWHERE[name]}")
        raise TypeError(f"Loader has no argument {name!r}{misspelt(name, known)}")


def path_text(path: Path) -> str:
    """The text of a path."""
    return os.fspath(path)


def dtype_name(dtype: Any) -> str:
    """The crate's name of an element type: of its own name, NumPy's or torch's."""
    name = getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    if name not in _DTYPES:
        raise ConfigError(
            f"dtype={dtype!r}: known are u8, f32, f16, bf16, of fields i16, i32, i64 and u16 too, and torch's and "
            "NumPy's names of these"
        )
    return _DTYPES[name]


def layout_name(layout: Any) -> str:
    """``nhwc``, ``nchw`` or ``channels_last``."""
    name = str(layout).removeprefix("torch.").lower()
    if name not in _LAYOUTS:
        raise ConfigError(f"layout={layout!r}: known are 'channels_last', 'nhwc', 'nchw', and torch's memory formats")
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
            raise ConfigError(
                f"normalize={normalize!r}: known are 'imagenet', 'unit' is the default of floats, or (mean, std)"
            )
        return IMAGENET
    wanted = "want 'imagenet' or (mean, std), each of three numbers on a scale of 0 to 1"
    try:
        mean, std = (tuple(float(x) for x in part) for part in normalize)
    except (TypeError, ValueError):
        raise TypeError(f"normalize={normalize!r}: {wanted}") from None
    if (len(mean), len(std)) != (3, 3):
        raise ConfigError(f"normalize={normalize!r}: {wanted}; these are of {len(mean)} and {len(std)}")
    return mean, std


def shuffling(shuffle: Any, seed: int | None) -> tuple[bool, int]:
    """Whether the order is shuffled, and the seed of everything that is random."""
    if shuffle is None or is_flag(shuffle):
        return bool(shuffle), seed or 0
    if shuffle == 0:
        # False for those who read it as a flag, and seed 0 for those who read it as a seed.
        raise ConfigError("shuffle=0: pass shuffle=False for the order of the data set, or shuffle=True, seed=0")
    if seed is not None and seed != shuffle:
        raise ConfigError(
            f"shuffle={shuffle} and seed={seed}: both are the seed, which the order and the augmentation share. For "
            f"one order with other augmentation pass seed={seed} and order=f, where f(epoch) returns the indices"
        )
    return True, int(shuffle)


def traced(trace: Any) -> tuple[Any, tuple[int, ...]]:
    """The file of a trace, and its windows."""
    if isinstance(trace, (str, os.PathLike)):
        return trace, (1, 1, 3, 1)
    try:
        path, windows = trace
        return os.fspath(path), tuple(int(n) for n in windows)
    except (TypeError, ValueError):
        raise TypeError(f"trace={trace!r}: want a path, or (path, (wait, warmup, active, repeat))") from None


def state_text(name: str, state: Any) -> str:
    """The JSON of what ``state_dict`` returned."""
    if not isinstance(state, Mapping):
        raise TypeError(f"{name}={state!r}: want what state_dict() returned")
    return json.dumps(dict(state))


def torch() -> Any:
    """PyTorch, or None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch


class Place(NamedTuple):
    """Which of the processes that train together this is."""

    rank: int
    world_size: int
    local_rank: int | None
    local_world_size: int | None


def of_launcher() -> Place | None:
    """The place that the launcher's environment tells.

    Raises:
        WarpfeedError: if variables are incomplete, as below Lightning's own launcher.
    """
    found = _warpfeed.rank_from_env()
    if found is None:
        return None
    rank, world_size, local_rank, local = found
    return Place(rank, world_size, local_rank, _local_world_size(world_size) if local is None else local)


def of_torch() -> Place | None:
    """The place in the default group of ``torch.distributed``, once that is initialised."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    found = _launched_or_none(environment_only=True)
    if found is not None and found[:2] == (rank, world_size):
        return found
    return Place(rank, world_size, _variable("LOCAL_RANK"), _local_world_size(world_size))


def _variable(name: str) -> int | None:
    text = os.environ.get(name, "").strip()
    return int(text) if text.isdigit() else None


def _local_world_size(world_size: int) -> int | None:
    """The number of ranks on this machine, where the launcher leaves it open; None if nothing tells.

    Ranks that meet at the loopback address run on one machine. On several machines each GPU has at
    most one rank.
    """
    local, address = _variable("LOCAL_WORLD_SIZE"), os.environ.get("MASTER_ADDR")
    if local is None and address not in ("localhost", "127.0.0.1", "::1"):
        module = sys.modules.get("torch")
        local = int(module.cuda.device_count()) if module is not None else 0
        if local == 0 and address is not None:
            return None
    return min(local or world_size, world_size)


def ranks(options: dict[str, Any], rank: int | None, world_size: int | None, distributed: bool | None) -> None:
    """Sets the rank, as it is given or as the launcher has it, and the number of ranks that share the
    processors."""
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank={rank} and world_size={world_size}: set both, or distributed=True")
    if rank is not None and distributed:
        raise ConfigError("rank and distributed: each decides on the rank; set one of them")
    found = _asked() if distributed else _launched_or_none()
    if found is not None and found.world_size > 1:
        if rank is None and distributed is None:
            raise ConfigError(
                f"this is rank {found.rank} of {found.world_size}: pass distributed=True, and each rank gets its "
                "share of every batch, or distributed=False, and each gets all samples"
            )
        if found.local_world_size:
            options["local_world_size"] = found.local_world_size
    if rank is not None:
        options["rank"] = (rank, world_size)
    elif distributed and found is not None:
        options["rank"] = (found.rank, found.world_size)


_LATER = (
    "make the loader after torch.distributed is initialised: with Lightning in train_dataloader() of the module or "
    "data module, with accelerate after Accelerator(), otherwise after init_process_group()"
)


def _asked() -> Place:
    """The place for ``distributed=True``."""
    try:
        found = launched()
    except WarpfeedError as e:
        raise ConfigError(f"distributed=True: {e}. Without such a launcher, {_LATER}") from None
    if found is None:
        raise ConfigError(
            "distributed=True: torch.distributed is not initialised, and no launcher says which rank this is (looked "
            f"for the variables of torchrun, Open MPI and SLURM). Start the program with one of them, or {_LATER}"
        )
    return found


def check_world(rank: int, world_size: int, distributed: bool | None) -> None:
    """Compares the rank of an open loader with ``torch.distributed``, which may have been initialised
    since the loader was opened.

    Raises:
        ConfigError: if each rank would get all samples, and nobody asked for that.
    """
    found = of_torch()
    if found is None or found[:2] == (rank, world_size):
        return
    place = f"this is rank {found.rank} of {found.world_size} of torch.distributed"
    if distributed is None:
        raise ConfigError(
            f"{place}, and the loader, which was opened before that was known, would deliver all samples to every "
            "rank: pass distributed=False if that is meant. For a share of every batch pass distributed=True, and "
            + _LATER
        )
    raise ConfigError(f"{place}, but the loader was opened as rank {rank} of {world_size}: {_LATER}")


def launched() -> Place | None:
    """This process's place: of ``torch.distributed`` once it is up, else of the launcher's
    environment."""
    return of_torch() or of_launcher()


def _launched_or_none(environment_only: bool = False) -> Place | None:
    try:
        return of_launcher() if environment_only else launched()
    except WarpfeedError:
        # Variables of a launcher that are incomplete mean nothing to who did not ask for ranks.
        return None


def cuda_ordinal(device: Any) -> int | None:
    """The number of the CUDA device that ``device`` means; None for host memory."""
    if device is None:
        return None
    if isinstance(device, int) and not is_flag(device):
        if device < 0:
            raise ConfigError(f"device={device}: want 'cpu', 'cuda', or the number of a device, from 0")
        return device
    kind, _, number = str(device).partition(":")
    if kind == "cpu":
        return None
    if kind != "cuda" or (number and not number.isdigit()):
        raise ConfigError(f"device={device!r}: known are 'cpu', 'cuda', 'cuda:1', a number, a torch.device and None")
    if number:
        return int(number)
    module = sys.modules.get("torch")
    if module is not None and module.cuda.is_available():
        return int(module.cuda.current_device())
    found = _launched_or_none()
    return (found.local_rank if found is not None else None) or 0


def delivery(output: str | None, device: Any, layout: Any) -> tuple[str, int | None, str]:
    """What tensors are, the number of the device that they are on, and their layout's name."""
    output = output or ("torch" if torch() is not None else "numpy")
    if output not in ("torch", "numpy", "dlpack"):
        raise ConfigError(f"output={output!r}: known are 'torch', 'numpy' and 'dlpack'")
    if output == "torch" and torch() is None:
        raise ConfigError("output='torch', and torch cannot be imported")
    ordinal = cuda_ordinal(device)
    if ordinal is not None and output == "numpy":
        raise ConfigError("output='numpy' is of host memory; with a device use 'torch' or 'dlpack'")
    default = "channels_last" if output == "torch" else "nhwc"
    return output, ordinal, layout_name(default if layout is None else layout)
