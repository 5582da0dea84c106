"""The rank of this process among the processes that train together."""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
from collections import defaultdict
from typing import Any, Mapping, NamedTuple

from . import _warpfeed
from ._error import ConfigError, WarpfeedError


class Rank(NamedTuple):
    """The rank among all processes, and among the processes on this machine."""

    rank: int
    world_size: int
    local_rank: int | None
    local_world_size: int | None


def of_launcher() -> Rank | None:
    """Returns the rank in the launcher's environment variables, or None if they are not set. Raises
    a WarpfeedError if they are incomplete, as with Lightning's own launcher, or contradictory."""
    result = _warpfeed.rank_from_env()
    if result is None:
        return None
    rank, world_size, local_rank, local_size = result
    return Rank(rank, world_size, local_rank, local_world_size(world_size) if local_size is None else local_size)


def of_torch() -> Rank | None:
    """Returns the rank in the default group of ``torch.distributed``, or None before its
    initialization."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    result = _rank_or_none(of_launcher)
    if result is not None and result[:2] == (rank, world_size):
        return result
    return Rank(rank, world_size, _env_int("LOCAL_RANK"), local_world_size(world_size))


def of_ray() -> Rank | None:
    """Returns the rank among the workers of Ray Train, or None outside of them."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        return Rank(
            context.get_world_rank(), context.get_world_size(), context.get_local_rank(), context.get_local_world_size()
        )
    except (RuntimeError, DeprecationWarning):
        # This process is the driver, a Ray task, or a trial of Ray Tune.
        return None


def launched() -> Rank | None:
    """Returns the rank in ``torch.distributed``, Ray Train or the environment, whichever is found
    first. The environment comes last, because Ray's workers inherit it from the job that started
    Ray."""
    return of_torch() or of_ray() or of_launcher()


def local_rank() -> int | None:
    result = _rank_or_none(launched)
    return None if result is None else result.local_rank


def _rank_or_none(find_rank: Any) -> Rank | None:
    try:
        result: Rank | None = find_rank()
    except WarpfeedError:
        # Only programs that use ranks need these variables.
        return None
    return result


def _env_int(name: str) -> int | None:
    text = os.environ.get(name, "").strip()
    return int(text) if text.isdigit() else None


def local_world_size(world_size: int) -> int | None:
    """Returns the number of ranks on this machine, or None if it is unknown.

    ``LOCAL_WORLD_SIZE`` is used if the launcher sets it. Otherwise, all ranks are assumed to be on
    this machine if they connect to the loopback address, and one rank per GPU is assumed if they do
    not. Without a GPU, all ranks are assumed to be on this machine if ``MASTER_ADDR`` is not set,
    and the number is unknown if it is set."""
    local_size, address = _env_int("LOCAL_WORLD_SIZE"), os.environ.get("MASTER_ADDR")
    if local_size is None and address not in ("localhost", "127.0.0.1", "::1"):
        torch = sys.modules.get("torch")
        local_size = int(torch.cuda.device_count()) if torch is not None else 0
        if local_size == 0 and address is not None:
            return None
    return min(local_size or world_size, world_size)


def options(rank: int | None, world_size: int | None, distributed: bool | None) -> dict[str, Any]:
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank={rank} and world_size={world_size}: set both, or pass distributed=True")
    if rank is not None and distributed is not None:
        raise ConfigError(
            f"rank={rank} and distributed={distributed}: rank and world_size deliver a share of every batch, "
            "distributed=True reads them from the launcher, and distributed=False delivers all samples; set one of them"
        )
    result = _require_rank() if distributed else _rank_or_none(launched)
    native: dict[str, Any] = {}
    if result is not None and result.world_size > 1:
        if rank is None and distributed is None:
            raise ConfigError(
                f"this is rank {result.rank} of {result.world_size}: pass distributed=True to deliver to each rank its "
                "share of every batch, or distributed=False to deliver all samples to every rank"
            )
        if result.local_world_size:
            native["local_world_size"] = result.local_world_size
    if rank is not None:
        native["rank"] = (rank, world_size)
    elif distributed and result is not None:
        native["rank"] = (result.rank, result.world_size)
    return native


_OPEN_LATER = (
    "create the loader after torch.distributed is initialized: with Lightning in train_dataloader() of the module or "
    "data module, with accelerate after Accelerator(), otherwise after init_process_group()"
)


def _require_rank() -> Rank:
    """Returns the rank of this process. Raises a ConfigError if there is none."""
    try:
        result = launched()
    except WarpfeedError as e:
        raise ConfigError(f"distributed=True: {e}. Without such a launcher, {_OPEN_LATER}") from None
    if result is None:
        raise ConfigError(
            "distributed=True: torch.distributed is not initialized, and there is neither Ray Train nor a launcher "
            f"with the variables of torchrun, Open MPI or SLURM. Start the program with one of them, or {_OPEN_LATER}"
        )
    return result


def check_world(rank: int, world_size: int, distributed: bool | None) -> None:
    """Compares the rank of an open loader with ``torch.distributed``, which may have been
    initialized after the loader was opened.

    Raises:
        ConfigError: if the ranks differ, or if the loader was opened without a rank and without
            ``distributed=False``, and would deliver all samples to every rank.
    """
    result = of_torch()
    if result is None or result[:2] == (rank, world_size):
        return
    process = f"this is rank {result.rank} of {result.world_size} of torch.distributed"
    if distributed is None:
        raise ConfigError(
            f"{process}, but the loader was opened without a rank, so it would deliver all samples to every rank: pass "
            "distributed=False if that is intended. For a share of every batch pass distributed=True, and "
            + _OPEN_LATER
        )
    raise ConfigError(f"{process}, but the loader was opened as rank {rank} of {world_size}; {_OPEN_LATER}")


#: For each name, the number of comparisons that this process has made under this name.
_run_counts: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
_comparison_counts = itertools.count()
_log = logging.getLogger("warpfeed")


def check_same(name: str, rank: int, world_size: int, run: Mapping[str, Any]) -> None:
    """Compares `run` with the `run` of the rank that called this function first, without waiting
    for other ranks.

    Each rank computes the order of the samples independently. If the orders differed, some samples
    would be delivered to several ranks, and others to none. If the numbers of batches differed, a
    collective operation such as DDP's all-reduce would wait forever. Runs with the same `name` are
    compared through the store of ``torch.distributed``, if the loader has the same ranks as
    ``torch.distributed``. Logs a warning if the names of the ranks have a different order, because
    threads may begin several loaders in any order.

    Raises:
        ConfigError: if an entry of `run` differs.
    """
    store, result = _store(), of_torch()
    if store is None or result is None or result[:2] != (rank, world_size):
        return
    # This assumes that the program makes its comparisons in the same order on every rank.
    key = f"warpfeed/{name}/{next(_run_counts[name])}"
    try:
        first = json.loads(store.compare_set(key, "", json.dumps(run)))
        first_name = store.compare_set(f"warpfeed name/{next(_comparison_counts)}", "", name).decode()
    except RuntimeError:
        # The process that hosts the store has ended, or the store does not support `compare_set`.
        return
    if first_name != name:
        _log.warning(
            "rank %d begins %r, but the rank that began first began %r: with distributed=True, every rank must read the "
            "same datasets in the same order; otherwise, samples are lost or read twice. If each rank reads a dataset of "
            "its own, pass distributed=False",
            rank, name, first_name,
        )  # fmt: skip
    differences = [
        f"{field} ({own_value} and {first.get(field)})"
        if field == "last_batch" or isinstance(own_value, int) and field != "order"
        else field
        for field, own_value in run.items()
        if own_value != first.get(field)
    ]
    if differences:
        raise ConfigError(
            f"rank {rank} differs from the rank that began first in: {', '.join(differences)}. "
            "Some samples would go to several ranks, and others to none, or some ranks would have fewer batches and "
            "block the others; give every rank the same data, options and state. If the dataset is in an object store, "
            "run `warpfeed cache refresh` on each machine to list it again. If the difference is intended, pass rank "
            "and world_size instead of distributed=True, which turns this check off"
        )


def _store() -> Any:
    """Returns the store of ``torch.distributed``. Returns None if there is no store, or if this
    version of torch does not provide access to the store."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    try:
        return module._get_default_store()  # type: ignore[union-attr]
    except (AttributeError, ValueError, RuntimeError):
        return None
