"""Trains on one or more GPUs with DistributedDataParallel and different loaders. Can also record
which samples each rank receives.

    torchrun --nproc-per-node 2 benches/ddp.py --data train.lmdb --folder imagenet/train --cores 2
    torchrun --nproc-per-node 2 benches/ddp.py --data train.lmdb --sums two.json
    torchrun --nproc-per-node 1 benches/ddp.py --data train.lmdb --sums one.json
    torchrun --nproc-per-node 1 benches/ddp.py --data train.lmdb --stop 7 --state state.json
    torchrun --nproc-per-node 2 benches/ddp.py --data train.lmdb --state state.json --sums rest.json

`train.py` defines the loaders. Without `--sums` or `--stop`, each loader feeds the training for
`--seconds`, with `--cores` dedicated cores per rank. Each RESULT line shows the images/s of all
ranks together. The other numbers are the worst of any rank: the cores used by the rank and its
child processes, the seconds from opening to the first batch, the 99th percentile of the waits for a
batch on the training stream, and the page-locked and device memory in warpfeed's plan. With torch
and DALI, each rank shuffles all samples.

With `--sums`, the script instead records the first `--batches` global batches: the sorted ids of
the samples, each with the sum of the bit patterns of its `bf16` pixels. Any number of ranks must
give the same file, and a resumed run must give the last batches of an uninterrupted run. `--stop N`
saves the state after N batches and kills each rank with `SIGKILL`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
import train as bench
import warpfeed


def loader(args: argparse.Namespace, **options: Any) -> warpfeed.Loader:
    return warpfeed.Loader(
        args.data, shuffle=True, seed=42, augment=warpfeed.Augment.train(224), device="cuda", dtype="bf16", normalize="imagenet",
        drop_last=True, distributed=True, unlabeled=True, num_workers=args.workers or None, **options,
    )  # fmt: skip


def sums(args: argparse.Namespace, rank: int, world: int) -> None:
    batches = loader(args, global_batch_size=args.batch)
    first = 0
    if args.state and os.path.exists(args.state) and not args.stop:
        with open(args.state) as file:
            state = json.load(file)
        first = state["batches"]
        batches.load_state_dict(state["loader"])
    recorded = []
    for index, batch in enumerate(batches, first):
        if index == args.batches:
            break
        pixel_sums = batch.images.view(torch.int16).to(torch.int64).sum((1, 2, 3)).tolist()
        own_samples = sorted(zip(batch.ids, pixel_sums, strict=True))
        gathered: list[Any] = [None] * world
        dist.all_gather_object(gathered, own_samples)
        recorded.append(sorted(map(list, sum(gathered, []))))
        if args.stop == index + 1:
            if rank == 0:
                with open(args.state, "w") as file:
                    json.dump({"batches": index + 1, "loader": batches.state_dict()}, file)
            dist.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0 and args.sums:
        with open(args.sums, "w") as file:
            json.dump({"first": first, "batches": recorded}, file)
    batches.close()


def feeds() -> dict[str, Any]:
    """Returns the loaders of `train.py` by name, with `distributed=True` for warpfeed's loaders."""
    distributed = {
        feed.name: type(feed.__name__, (feed,), {"more": {"distributed": True}})
        for feed in bench.FEEDS
        if issubclass(feed, bench.Warpfeed)
    }
    return {feed.name: distributed.get(feed.name, feed) for feed in bench.FEEDS}


def core_seconds() -> float:
    """Returns the CPU time of this process and of its running child processes, such as the workers
    of a `DataLoader`, in seconds."""
    own_pid = os.getpid()
    total = time.process_time()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # The process has ended.
            continue
        if int(fields[1]) == own_pid:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


class Waits:
    """Measures how long the training stream waits for each batch, with events before and after
    `next()`."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches
        self.pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def __iter__(self) -> Any:
        while True:
            pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            pair[0].record()
            batch = next(self.batches)
            pair[1].record()
            self.pairs.append(pair)
            yield batch
            del batch

    def p99(self) -> float:
        """Returns the 99th percentile of the waits in ms, without the first tenth of the steps."""
        times = sorted(begin.elapsed_time(end) for begin, end in self.pairs[len(self.pairs) // 10 :])
        return times[min(len(times) - 1, int(0.99 * len(times)))]


def measure_feed(feed: Any, step: Any, args: argparse.Namespace, world: int) -> dict[str, Any]:
    """Trains for `args.seconds`, and returns the measurements of this rank."""
    torch.cuda.synchronize()
    dist.barrier()
    begin = time.monotonic()
    source = feed(args)
    waits = Waits(iter(source))
    batches = iter(waits)
    images, labels = next(batches)
    torch.cuda.synchronize()
    started = time.monotonic() - begin
    for _ in range(20):
        step(images, labels)
        images, labels = next(batches)
    dist.barrier()
    torch.cuda.synchronize()
    waits.pairs.clear()
    begin, used, steps = time.monotonic(), core_seconds(), 0
    # Each step waits for everyone's gradients, so all ranks must take the same number of steps.
    keep_going = torch.ones(1, device="cuda")
    while keep_going.item() > 0:
        for _ in range(20):
            step(images, labels)
            del images, labels
            images, labels = next(batches)
            steps += 1
        keep_going.fill_(float(time.monotonic() - begin < args.seconds))
        dist.all_reduce(keep_going, dist.ReduceOp.MIN)
    torch.cuda.synchronize()
    took = time.monotonic() - begin
    loader = getattr(source, "loader", None)
    plan = loader.memory_plan() if hasattr(loader, "memory_plan") else {}
    figures = {
        "images/s": steps * args.batch * world / took,
        "cores": (core_seconds() - used) / took,
        "first batch s": started,
        "stall p99 ms": waits.p99(),
        "pinned MB": plan.get("pinned_bytes", 0) / 1e6,
        "device MB": plan.get("device_bytes", 0) / 1e6,
    }
    del images, labels, batches, waits
    if isinstance(source, bench.Warpfeed):
        source.loader.close()
    return figures


def train(args: argparse.Namespace, rank: int, world: int) -> None:
    """Prints, for each model and loader, the images/s of all ranks, and the worst value of any rank
    for the other measurements."""
    all_feeds, results = feeds(), []
    rates_by_key: dict[str, list[float]] = {}
    for model in args.models.split(","):
        step = bench.Step(model, args)
        step.model = torch.nn.parallel.DistributedDataParallel(step.model, device_ids=[torch.cuda.current_device()])
        for round_index in range(args.rounds):
            for name in args.feeds.split(","):
                ranks: list[Any] = [None] * world
                dist.all_gather_object(ranks, measure_feed(all_feeds[name], step, args, world))
                torch.cuda.empty_cache()
                worst = {key: max(rank_figures[key] for rank_figures in ranks) for key in ranks[0]}
                worst["images/s"] = min(rank_figures["images/s"] for rank_figures in ranks)
                key = f"{model}/{name}"
                rates_by_key.setdefault(key, []).append(worst["images/s"])
                results.append({"model": model, "feed": name, "round": round_index, "ranks": ranks})
                if rank == 0:
                    figures = ", ".join(f"{key} {value:.2f}" for key, value in worst.items())
                    print(f"RESULT {world} ranks, {args.cores or 'all'} cores each, {key}: {figures}", flush=True)
    if rank != 0:
        return
    for key, rates in rates_by_key.items():
        repeated = rates_by_key.get(f"{key.split('/')[0]}/repeated")
        rate = statistics.median(rates)
        share = f"{100 * rate / statistics.median(repeated):.1f}% of the repeated-batch rate" if repeated else ""
        print(f"SHARE {world} ranks, {args.cores or 'all'} cores each, {key}: {rate:.0f} images/s {share}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"ranks": world, "cores": args.cores, "results": results}, file, indent=1)


def bind(cores: int, local_rank: int) -> None:
    """Binds all threads of this process to cores that no other rank uses, as launchers do."""
    allowed = sorted(os.sched_getaffinity(0))
    rank_cores = allowed[cores * local_rank : cores * (local_rank + 1)]
    if len(rank_cores) < cores:
        raise SystemExit(
            f"local rank {local_rank} needs {cores} cores, but only {len(allowed)} are available; pass fewer --cores"
        )
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), rank_cores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, default=256, help="global batch size with --sums; per-rank batch size otherwise")
    parser.add_argument("--batches", type=int, default=12, help="number of global batches to record with --sums")
    parser.add_argument("--folder", help="class folders, for torch, DALI and `warpfeed folder`")
    parser.add_argument("--models", default="resnet18,resnet50")
    parser.add_argument("--feeds", default="repeated,warpfeed,warpfeed gpu,warpfeed auto")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5, help="training time for each model, loader and round")
    parser.add_argument("--cores", type=int, default=0, help="cores per rank; 0 does not bind the ranks")
    parser.add_argument("--json")
    parser.add_argument("--workers", type=int, default=0, help="threads per rank; 0 uses one per core available to the rank")
    parser.add_argument("--sums")
    parser.add_argument("--state")
    parser.add_argument("--stop", type=int, default=0)
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    if args.cores:
        bind(args.cores, local_rank)
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    rank, world = dist.get_rank(), dist.get_world_size()
    if args.sums or args.stop:
        sums(args, rank, world)
    else:
        train(args, rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
