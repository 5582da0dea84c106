"""Measures the time that the GPU waits for batches, with three clocks in one run.

    python benches/idle.py --data train.lmdb [--model resnet18] [--starved 3] [--steps 60]

One training step gets its batches from three feeds: a repeated batch, warpfeed, and warpfeed with
so few workers that the step starves. For each feed, three clocks measure a window of steps:

- `loader`: the loader's own `stall` (`loader.stats()`): the time per batch on the step's stream
  from the request until the batch is ready;
- `events`: torch's events, recorded on the same stream before and after `next`;
- `profiler`: the time in which torch's profiler saw no kernel on the step's stream. This includes
  the gaps between the kernels of a step and the profiler's own cost. `net` is this time minus its
  value for the repeated batch.

The loader and torch's events measure the same interval and should agree. The profiler shows whether
this wait is all of the GPU's idle time. All times are in ms per step.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from typing import Any, Iterator

import torch
from train import Repeated, Step, Warpfeed, steps


def timed(batches: Iterator[tuple[Any, Any]], waits: list[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yields the batches. Records an event on the current stream before and after each `next`."""
    while True:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        batch = next(batches)
        end.record()
        waits.append((begin, end))
        yield batch
        del batch


def idle_of_kernels(profiler: Any) -> tuple[float, float]:
    """Returns the time without a kernel on the busiest stream, and the total time, in ms."""
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA and event.time_range.end > event.time_range.start:
            spans[getattr(event, "device_resource_id", 0)].append((event.time_range.start, event.time_range.end))
    if not spans:
        raise RuntimeError("the profiler saw no kernels")
    own = sorted(max(spans.values(), key=lambda found: sum(end - start for start, end in found)))
    busy, at = 0.0, own[0][0]
    for start, end in own:
        busy += max(0.0, end - max(start, at))
        at = max(at, end)
    whole = at - own[0][0]
    return (whole - busy) / 1e3, whole / 1e3


def measured(step: Step, feed: Any, count: int) -> dict[str, float | None]:
    """Returns means over `count` steps without the profiler, and over `count` steps with it."""
    waits: list[tuple[Any, Any]] = []
    batches = timed(iter(feed), waits)
    clocks = getattr(feed, "clocks", lambda: None)
    steps(step, batches, 2.0)
    waits.clear()
    before = clocks()
    seconds, _ = steps(step, batches, 0, count)
    after = clocks()
    found: dict[str, float | None] = {"step": 1e3 * seconds / count, "loader": None}
    found["events"] = sum(begin.elapsed_time(end) for begin, end in waits) / len(waits)
    if before is not None:
        # The device reports waits some batches later, so they are counted separately.
        found["loader"] = 1e3 * (after["stall"] - before["stall"]) / max(1.0, after["stalls"] - before["stalls"])
    waits.clear()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        steps(step, batches, 0, count)
    idle, whole = idle_of_kernels(profiler)
    found["profiler"], found["profiled step"] = idle / count, whole / count
    found["events, profiled"] = sum(begin.elapsed_time(end) for begin, end in waits) / len(waits)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--starved", type=int, default=3, help="number of workers of the slow loader")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--side", type=int, default=224)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch found no CUDA device", file=sys.stderr)
        return 1
    step = Step(args.model, args)
    rows: dict[str, dict[str, float | None]] = {}
    for name, workers in [("repeated", None), ("warpfeed", 0), ("starved", args.starved)]:
        args.workers = workers
        feed = Repeated(args) if workers is None else Warpfeed(args)
        rows[name] = measured(step, feed, args.steps)
        getattr(feed, "close", lambda: None)()
    columns = ["step", "loader", "events", "profiled step", "events, profiled", "profiler", "net"]
    print(f"\n{args.model}, ms per step\n{'fed by':<10}" + "".join(f"{name:>18}" for name in columns))
    for name, row in rows.items():
        row["net"] = (row["profiler"] or 0.0) - (rows["repeated"]["profiler"] or 0.0)
        shown = ("" if row[column] is None else f"{row[column]:.3f}" for column in columns)
        print(f"{name:<10}" + "".join(f"{value:>18}" for value in shown))
    starved = rows["starved"]
    for one, other in [("loader", "events"), ("net", "events, profiled")]:
        a, b = starved[one], starved[other]
        if a and b:
            print(f"starved: {one} / {other} = {a / b:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
