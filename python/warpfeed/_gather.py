"""Compares the ranks of a training run, for :meth:`Stats.gather`."""

from __future__ import annotations

import json
import sys
from statistics import median
from typing import Any, Callable, Mapping

from . import _ranks
from ._error import ConfigError
from ._report import Report, Stats

#: Ranks whose fractions of time spent waiting differ by less than this count as equal.
_SIMILAR = 0.05
_STAGES = ("wait", "step", "read", "readahead", "decode", "transform", "write", "copy", "convert", "device_decode", "stall")
#: Stages of the training loop. They are never named as the reason why a loader is slow.
_LOOP_STAGES = ("wait", "step", "stall")


def gather(stats: Stats, collect: Callable[[Any], Any] | None) -> Report:
    own_entry = _own_entry(stats)
    ranks = (_all_gather if collect is None else collect)(own_entry)
    if not isinstance(ranks, (list, tuple)) or own_entry not in ranks:
        raise ConfigError(
            f"collect returned a {type(ranks).__name__} that is not a list with this rank's own entry: expected a list "
            "of the entries of all ranks, on every rank, as mpi4py's comm.allgather returns it"
        )
    return _compare([dict(rank) for rank in ranks])


def _own_entry(stats: Stats) -> dict[str, Any]:
    launched_rank = _ranks._rank_or_none(_ranks.launched)
    verdict = stats.verdict()
    stages = {name: stats[name] for name in _STAGES} | {
        f"field {name}": stage for name, stage in stats["fields"].items()
    }
    return {
        "rank": None if launched_rank is None else launched_rank.rank,
        "wait_fraction": verdict["wait_fraction"],
        "bottleneck": verdict["bottleneck"],
        "verdict": str(verdict),
        "batches": stats["batches"],
        "seconds": stats["seconds"],
        "stages": {name: stage["seconds"] for name, stage in stages.items() if stage is not None},
    }


def _all_gather(own_entry: Any) -> list[Any]:
    """Collects one value from each rank through ``torch.distributed``. If ``torch.distributed`` is
    not initialized, there must be only one rank."""
    if _ranks.of_torch() is not None:
        distributed = sys.modules["torch"].distributed
        entries: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(entries, own_entry)
        return entries
    launched_rank = _ranks.launched()
    if launched_rank is not None and launched_rank.world_size > 1:
        raise ConfigError(
            f"this process is rank {launched_rank.rank} of {launched_rank.world_size}, but torch.distributed is not "
            "initialized: initialize it, or pass collect, such as mpi4py's comm.allgather"
        )
    return [own_entry]


def _compare(ranks: list[dict[str, Any]]) -> Report:
    # Keep the rank numbers in the entries, because `collect` may return only some ranks. Number the
    # entries instead if their ranks are unknown or repeated.
    rank_numbers = {rank["rank"] for rank in ranks}
    if None in rank_numbers or len(rank_numbers) < len(ranks):
        for index, rank in enumerate(ranks):
            rank["rank"] = index
    slowest = max(ranks, key=lambda rank: rank["wait_fraction"])
    numbers = {
        "slowest": slowest["rank"],
        "wait_fraction": slowest["wait_fraction"],
        "bottleneck": slowest["bottleneck"],
        "stages": {name: _stage_comparison(name, ranks) for rank in ranks for name in rank["stages"]},
        "ranks": ranks,
    }
    return Report(json.dumps(numbers), _report_text(slowest, [rank for rank in ranks if rank is not slowest]))


def _stage_comparison(name: str, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    slowest = max(ranks, key=lambda rank: rank["stages"].get(name, 0.0))
    median_seconds = median(rank["stages"].get(name, 0.0) for rank in ranks)
    return {"rank": slowest["rank"], "seconds": slowest["stages"].get(name, 0.0), "median_seconds": median_seconds}


def _report_text(slowest: Mapping[str, Any], others: list[dict[str, Any]]) -> str:
    rank, waits = slowest["rank"], f"{100 * slowest['wait_fraction']:.0f}% of the time"
    median_wait_fraction = median(other["wait_fraction"] for other in others) if others else slowest["wait_fraction"]
    lines = []
    if not others:
        headline = f"rank {rank} is the only rank: it waits {waits}"
    elif slowest["bottleneck"] == "step":
        headline = f"no rank is limited by its loader: rank {rank} waits most, {waits}"
    elif slowest["wait_fraction"] - median_wait_fraction < _SIMILAR:
        headline = f"all {len(others) + 1} ranks wait about equally: rank {rank} waits most, {waits}"
    else:
        headline = f"rank {rank} is slow: it waits {waits}, the other ranks {100 * median_wait_fraction:.0f}% (median)"
        lines = _slow_stage_lines(slowest, others)
    return "\n- ".join([headline, *lines, f"rank {rank}: {slowest['verdict']}"])


def _slow_stage_lines(slowest: Mapping[str, Any], others: list[dict[str, Any]]) -> list[str]:
    """Names the stage in which the slowest rank loses the most time, compared with the median of
    the others."""
    excess = {
        name: (seconds - median_seconds, seconds, median_seconds)
        for name, seconds in slowest["stages"].items()
        if name not in _LOOP_STAGES
        for median_seconds in [median(other["stages"].get(name, 0.0) for other in others)]
    }
    name, (excess_seconds, seconds, median_seconds) = max(excess.items(), key=lambda entry: entry[1][0])
    return (
        [f"stage `{name}`: {seconds:.1f} s, and {median_seconds:.1f} s on the other ranks (median)"]
        if excess_seconds > 0
        else []
    )
