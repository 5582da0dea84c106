"""The rank of this process among those that train together."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections import defaultdict
from typing import Any, Mapping, NamedTuple

from . import _warpfeed
from ._error import ConfigError, WarpfeedError


class Place(NamedTuple):
    """The rank of a process, among all and on its machine."""

    rank: int
    world_size: int
    local_rank: int | None
    local_world_size: int | None


def of_launcher() -> Place | None:
    """The place according to the launcher's environment.

    Raises:
        WarpfeedError: if variables are incomplete, as under Lightning's own launcher.
    """
    found = _warpfeed.rank_from_env()
    if found is None:
        return None
    rank, world_size, local_rank, local = found
    return Place(rank, world_size, local_rank, local_world_size(world_size) if local is None else local)


def of_torch() -> Place | None:
    """The place in the default group of ``torch.distributed``, once that is initialized."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    found = _or_none(of_launcher)
    if found is not None and found[:2] == (rank, world_size):
        return found
    return Place(rank, world_size, _variable("LOCAL_RANK"), local_world_size(world_size))


def of_ray() -> Place | None:
    """The place among the workers of Ray Train, in a function that it runs."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        return Place(
            context.get_world_rank(), context.get_world_size(), context.get_local_rank(), context.get_local_world_size()
        )
    except (RuntimeError, DeprecationWarning):
        # The program itself, a task of Ray, or a trial of Ray Tune.
        return None


def launched() -> Place | None:
    """The place in ``torch.distributed``, or in Ray Train, or according to the launcher's environment.

    Ray's workers inherit the environment of the job that started Ray, so it comes last.
    """
    return of_torch() or of_ray() or of_launcher()


def local_rank() -> int | None:
    """The rank on this machine, if a launcher sets it."""
    found = _or_none(launched)
    return None if found is None else found.local_rank


def _or_none(place: Any) -> Place | None:
    try:
        found: Place | None = place()
    except WarpfeedError:
        # Incomplete variables of a launcher are an error only for programs that ask for ranks.
        return None
    return found


def _variable(name: str) -> int | None:
    text = os.environ.get(name, "").strip()
    return int(text) if text.isdigit() else None


def local_world_size(world_size: int) -> int | None:
    """The number of ranks on this machine if no launcher counts them; None if it is unknown.

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


def options(rank: int | None, world_size: int | None, distributed: bool | None) -> dict[str, Any]:
    """The native options ``rank``, given or found, and ``local_world_size``."""
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank={rank} and world_size={world_size}: set both, or distributed=True")
    if rank is not None and distributed:
        raise ConfigError("rank and distributed: each decides on the rank; set one of them")
    found = _asked() if distributed else _or_none(launched)
    set_: dict[str, Any] = {}
    if found is not None and found.world_size > 1:
        if rank is None and distributed is None:
            raise ConfigError(
                f"this is rank {found.rank} of {found.world_size}: pass distributed=True, and each rank gets its "
                "share of every batch, or distributed=False, and each gets all samples"
            )
        if found.local_world_size:
            set_["local_world_size"] = found.local_world_size
    if rank is not None:
        set_["rank"] = (rank, world_size)
    elif distributed and found is not None:
        set_["rank"] = (found.rank, found.world_size)
    return set_


_LATER = (
    "create the loader after torch.distributed is initialized: with Lightning in train_dataloader() of the module or "
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
            "distributed=True: torch.distributed is not initialized, and no launcher says which rank this is (looked "
            f"for Ray Train, and the variables of torchrun, Open MPI and SLURM). Start the program with one of them, or {_LATER}"
        )
    return found


def check_world(rank: int, world_size: int, distributed: bool | None) -> None:
    """Compares the rank of an open loader with ``torch.distributed``, which may have been
    initialized since the loader was opened.

    Raises:
        ConfigError: if each rank would get all samples although the program did not ask for that.
    """
    found = of_torch()
    if found is None or found[:2] == (rank, world_size):
        return
    place = f"this is rank {found.rank} of {found.world_size} of torch.distributed"
    if distributed is None:
        raise ConfigError(
            f"{place}, and the loader, which was opened before that was known, would deliver all samples to every "
            "rank: pass distributed=False if that is intended. For a share of every batch pass distributed=True, and "
            + _LATER
        )
    raise ConfigError(f"{place}, but the loader was opened as rank {rank} of {world_size}: {_LATER}")


#: Numbers of the loaders of each name that have begun in this process.
_begun: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)


def check_same(name: str, rank: int, world_size: int, run: Mapping[str, Any]) -> None:
    """Compares the run of a loader with that of the rank whose loader began first. Waits for no rank.

    Each rank takes its share of an order that it computes itself, so runs that differ would give some
    samples to several ranks and others to none. Runs are compared if ``torch.distributed`` has the
    ranks of the loader, through the store where its ranks met.

    Raises:
        ConfigError: if the seed, the dataset, the order or the position differs.
    """
    store, found = _store(), of_torch()
    if store is None or found is None or found[:2] != (rank, world_size):
        return
    # The loaders of a program begin in the same order on every rank.
    key = f"warpfeed/{name}/{next(_begun[name])}"
    try:
        first = json.loads(store.compare_set(key, "", json.dumps(run)))
    except RuntimeError:
        # The process with the store has ended, or this kind of store cannot compare.
        return
    differs = [
        f"{what} ({own} and {first.get(what)})" if isinstance(own, int) and what != "order" else what
        for what, own in run.items()
        if own != first.get(what)
    ]
    if differs:
        raise ConfigError(
            f"the run of rank {rank} is not that of the rank that began first; these differ: {', '.join(differs)}. "
            "Some samples would go to several ranks, and others to none: give every rank the same data, seed and state. "
            "If the dataset is in a store, `warpfeed cache refresh` makes a machine list it again. Loaders with rank and "
            "world_size in place of distributed=True are not compared"
        )


def _store() -> Any:
    """The store where the ranks of ``torch.distributed`` met; None if this version has none that can compare."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    try:
        return module._get_default_store()  # type: ignore[union-attr]
    except (AttributeError, ValueError, RuntimeError):
        return None
