"""Trains ResNet-50 on one or more GPUs with DistributedDataParallel, and records each rank's part.

    torchrun --nproc-per-node 2 benches/ddp.py --data train.lmdb --sums two.json
    torchrun --nproc-per-node 1 benches/ddp.py --data train.lmdb --sums one.json
    torchrun --nproc-per-node 1 benches/ddp.py --data train.lmdb --steps 0 --stop 7 --state state.json
    torchrun --nproc-per-node 2 benches/ddp.py --data train.lmdb --steps 0 --state state.json --sums rest.json

`--sums` writes, for each of the first global batches, the sorted ids of its samples with the sums of
their pixels. The files are equal for any number of ranks, and the file of a resumed run is the end
of that of an uninterrupted run. `--stop N` saves the state after N batches and ends by `SIGKILL`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist
import torchvision
import warpfeed


def loader(args: argparse.Namespace, **more: Any) -> warpfeed.Loader:
    return warpfeed.Loader(
        args.data, shuffle=42, augment=warpfeed.Augment.train(224), device="cuda", dtype="bf16", normalize="imagenet",
        drop_last=True, distributed=True, unlabelled=True, num_workers=args.workers, **more,
    )  # fmt: skip


def sums(args: argparse.Namespace, rank: int, world: int) -> None:
    """The ids and sums of the first global batches, and the state after some of them."""
    batches = loader(args, global_batch_size=args.batch)
    before = 0
    if args.state and os.path.exists(args.state) and not args.stop:
        with open(args.state) as file:
            state = json.load(file)
        before = state["batches"]
        batches.load_state_dict(state["loader"])
    found = []
    for number, batch in enumerate(batches, before):
        if number == args.batches:
            break
        pixels = batch.images.view(torch.int16).to(torch.int64).sum((1, 2, 3)).tolist()
        own = sorted(zip(batch.ids, pixels, strict=True))
        every: list[Any] = [None] * world
        dist.all_gather_object(every, own)
        found.append(sorted(map(list, sum(every, []))))
        if args.stop == number + 1:
            if rank == 0:
                with open(args.state, "w") as file:
                    json.dump({"batches": number + 1, "loader": batches.state_dict()}, file)
            dist.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0 and args.sums:
        with open(args.sums, "w") as file:
            json.dump({"first": before, "batches": found}, file)
    batches.close()


def train(args: argparse.Namespace, rank: int, world: int) -> None:
    """Images per second of all ranks together, fed by a repeated batch and by the loader."""
    torch.backends.cudnn.benchmark = True
    net = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    batches = loader(args, batch_size=args.batch)

    def repeated() -> Any:
        images = torch.randn(args.batch, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
        batch = images.to(memory_format=torch.channels_last), torch.zeros(args.batch, dtype=torch.int64, device="cuda")
        while True:
            yield batch

    def delivered() -> Any:
        while True:
            yield from batches

    for name, feed in [("repeated", repeated()), ("warpfeed", delivered())] * 2:
        begin, steps = time.monotonic(), -20
        while steps < args.steps:
            if steps == 0:
                torch.cuda.synchronize()
                begin = time.monotonic()
            images, labels = next(feed)
            with torch.autocast("cuda", torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(net(images), labels.clamp_min(0))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            steps += 1
            del images, labels
        torch.cuda.synchronize()
        rate = args.steps * args.batch * world / (time.monotonic() - begin)
        if rank == 0:
            print(f"RESULT {world} ranks, {name}: {rate:.0f} images/s", flush=True)
    if rank == 0:
        print(f"    {batches.verdict()}", flush=True)
    batches.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, default=256, help="of all ranks for the sums, of one for the training")
    parser.add_argument("--batches", type=int, default=12, help="global batches of which sums are written")
    parser.add_argument("--steps", type=int, default=150, help="steps of each part of the training; 0 leaves it out")
    parser.add_argument("--workers", type=int, default=0, help="threads of each rank; 0 is one per core of its share")
    parser.add_argument("--sums")
    parser.add_argument("--state")
    parser.add_argument("--stop", type=int, default=0)
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    rank, world = dist.get_rank(), dist.get_world_size()
    if args.sums or args.stop:
        sums(args, rank, world)
    if args.steps:
        train(args, rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
