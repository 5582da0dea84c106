"""Measures how long the GPU waits for batches, with three clocks.

    python benches/idle.py --data train.lmdb [--model resnet18] [--starved 3] [--steps 60]

The training step uses a repeated batch, batches from warpfeed, and batches from warpfeed with so
few workers that the GPU starves. The first two clocks measure the same steps, and the profiler
measures as many later steps:

- `loader` (except for the repeated batch): the `stall` in `loader.stats()`, which is the time that
  the training stream waits for a batch after requesting it;
- `events`: the time between torch events that are recorded on the same stream before and after
  `next`;
- `profiler`: the time in which torch's profiler saw no kernel on the training stream. This includes
  the gaps between the kernels of a step, and the profiler's overhead. `net` is this time minus the
  same time for the repeated batch.

`loader` and `events` measure the same interval and should agree. `net` shows whether the GPU is
idle for any other reason. All times are in ms per step.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from typing import Any, Iterator

import torch
from train import Repeated, Step, Warpfeed, steps


def timed(batches: Iterator[tuple[Any, Any]], waits: list[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Records events on the current stream before and after each `next`, and appends them to
    `waits`."""
    while True:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        batch = next(batches)
        end.record()
        waits.append((begin, end))
        yield batch
        del batch


def idle_of_kernels(profiler: Any) -> tuple[float, float]:
    """Returns the time in which no kernel ran on the busiest stream, and the total time, in ms."""
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA and event.time_range.end > event.time_range.start:
            spans[getattr(event, "device_resource_id", 0)].append((event.time_range.start, event.time_range.end))
    if not spans:
        raise RuntimeError("the profiler saw no kernels")
    busiest = sorted(max(spans.values(), key=lambda kernels: sum(end - start for start, end in kernels)))
    busy, busy_until = 0.0, busiest[0][0]
    for start, end in busiest:
        busy += max(0.0, end - max(start, busy_until))
        busy_until = max(busy_until, end)
    total = busy_until - busiest[0][0]
    return (total - busy) / 1e3, total / 1e3


def measure(step: Step, feed: Any, count: int) -> dict[str, float | None]:
    """Returns the mean times of `count` steps without the profiler and `count` steps with it."""
    waits: list[tuple[Any, Any]] = []
    batches = timed(iter(feed), waits)
    clocks = getattr(feed, "clocks", lambda: None)
    steps(step, batches, 2.0)
    waits.clear()
    before = clocks()
    seconds, _ = steps(step, batches, 0, count)
    after = clocks()
    means: dict[str, float | None] = {"step": 1e3 * seconds / count, "loader": None}
    means["events"] = sum(begin.elapsed_time(end) for begin, end in waits) / len(waits)
    if before is not None:
        # The device reports a wait some batches later, so divide by the number of reported waits.
        means["loader"] = 1e3 * (after["stall"] - before["stall"]) / max(1.0, after["stalls"] - before["stalls"])
    waits.clear()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        steps(step, batches, 0, count)
    idle, total = idle_of_kernels(profiler)
    means["profiler"], means["profiled step"] = idle / count, total / count
    means["events, profiled"] = sum(begin.elapsed_time(end) for begin, end in waits) / len(waits)
    return means


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--starved", type=int, default=3, help="number of workers for the loader that is too slow")
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
        rows[name] = measure(step, feed, args.steps)
        getattr(feed, "close", lambda: None)()
    columns = ["step", "loader", "events", "profiled step", "events, profiled", "profiler", "net"]
    print(f"\n{args.model}, ms per step\n{'fed by':<10}" + "".join(f"{name:>18}" for name in columns))
    for name, row in rows.items():
        row["net"] = (row["profiler"] or 0.0) - (rows["repeated"]["profiler"] or 0.0)
        cells = ("" if row[column] is None else f"{row[column]:.3f}" for column in columns)
        print(f"{name:<10}" + "".join(f"{cell:>18}" for cell in cells))
    starved = rows["starved"]
    for first, second in [("loader", "events"), ("net", "events, profiled")]:
        a, b = starved[first], starved[second]
        if a and b:
            print(f"starved: {first} / {second} = {a / b:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
