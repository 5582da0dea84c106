"""Training ResNet-18 and ResNet-50 on one GPU, fed in different ways, in turns.

    python benches/train.py --data train.lmdb --folder imagenet/train [--seconds 600] [--json out.json]

`--data` is what warpfeed reads (an LMDB, shards or a folder), `--folder` the class folders that
torch's DataLoader and DALI read. Fed by:

- `repeated`: one batch on the device, again and again: how fast the step is without a loader;
- `warpfeed`: `device="cuda"`, bf16, channels last, normalised on the device;
- `warpfeed folder`: the same from the folder;
- `torch`: torch.utils.data.DataLoader with torchvision's decoder and transforms on `uint8`,
  page-locked, non-blocking, normalised on the device;
- `dali`: DALI's pipeline with the `mixed` decoder, where it can be imported.

Images/s are medians of the rounds. `idle` is the share of a window in which no kernel of the step
ran, by torch's profiler. `stall` is the loader's own figure for the same window. Each part that
fails prints its error, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from typing import Any, Callable, Iterator

import torch

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def forever(loader: Any) -> Iterator[tuple[Any, Any]]:
    while True:
        yield from loader


class Repeated:
    name = "repeated"

    def __init__(self, args: argparse.Namespace) -> None:
        images = torch.randn(args.batch, 3, args.side, args.side, device="cuda", dtype=torch.bfloat16)
        self.batch = images.to(memory_format=torch.channels_last), torch.randint(0, 1000, (args.batch,), device="cuda")

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        while True:
            yield self.batch

    def stall(self) -> Any:
        return None


class Warpfeed:
    name = "warpfeed"
    path = "data"

    def __init__(self, args: argparse.Namespace) -> None:
        import warpfeed

        self.loader = warpfeed.Loader(
            getattr(args, self.path), batch_size=args.batch, shuffle=42, augment=warpfeed.Augment.train(args.side),
            device="cuda", dtype="bf16", normalize="imagenet", drop_last=True, num_workers=args.workers, unlabelled=True,
        )  # fmt: skip

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for images, labels in forever(self.loader):
            yield images, labels.clamp_min(0)

    def stall(self) -> Any:
        stats = self.loader.stats()
        stall = stats.get("stall") or {}
        return stats["seconds"], stats["waited_seconds"], stall.get("seconds", 0.0)

    def close(self) -> None:
        print(f"    {self.loader.verdict()}", flush=True)
        self.loader.close()


class WarpfeedFolder(Warpfeed):
    name = "warpfeed folder"
    path = "folder"


class Torch:
    name = "torch"

    def __init__(self, args: argparse.Namespace) -> None:
        from torchvision import datasets, io
        from torchvision.transforms import v2

        def decoded(path: str) -> torch.Tensor:
            return io.decode_image(io.read_file(path), mode="RGB")

        steps = v2.Compose([v2.RandomResizedCrop(args.side, antialias=True), v2.RandomHorizontalFlip()])
        data = datasets.ImageFolder(args.folder, steps, loader=decoded)
        self.mean, self.std = (torch.tensor(v, device="cuda").view(1, 3, 1, 1) * 255 for v in (MEAN, STD))
        # Small sets are passed over several times an epoch: what is measured is the middle.
        several = torch.utils.data.ConcatDataset([data] * max(1, 50_000 // len(data)))
        workers = args.workers or len(os.sched_getaffinity(0))
        self.loader = torch.utils.data.DataLoader(
            several, args.batch, shuffle=True, num_workers=workers, pin_memory=True, drop_last=True, persistent_workers=True
        )

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for images, labels in forever(self.loader):
            images = images.to("cuda", non_blocking=True).to(memory_format=torch.channels_last)
            yield ((images - self.mean) / self.std).bfloat16(), labels.to("cuda", non_blocking=True)

    def stall(self) -> Any:
        return None


class Dali:
    name = "dali"

    def __init__(self, args: argparse.Namespace) -> None:
        from nvidia.dali import fn, pipeline_def, types
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

        @pipeline_def(batch_size=args.batch, num_threads=args.workers or len(os.sched_getaffinity(0)), device_id=0)
        def pipeline() -> Any:
            files, labels = fn.readers.file(file_root=args.folder, random_shuffle=True, name="files")
            images = fn.decoders.image_random_crop(files, device="mixed", output_type=types.RGB)
            images = fn.resize(images, resize_x=args.side, resize_y=args.side)
            mirror = fn.random.coin_flip()
            mean, std = [m * 255 for m in MEAN], [s * 255 for s in STD]
            images = fn.crop_mirror_normalize(images, dtype=types.FLOAT16, output_layout="HWC", mean=mean, std=std, mirror=mirror)
            return images, labels.gpu()

        self.loader = DALIGenericIterator([pipeline()], ["image", "label"], auto_reset=True)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for [batch] in forever(self.loader):
            yield batch["image"].permute(0, 3, 1, 2).to(torch.bfloat16), batch["label"].squeeze(-1).long()

    def stall(self) -> Any:
        return None


FEEDS = [Repeated, Warpfeed, WarpfeedFolder, Torch, Dali]


class Step:
    def __init__(self, model: str, args: argparse.Namespace) -> None:
        import torchvision

        torch.backends.cudnn.benchmark = True
        self.model = getattr(torchvision.models, model)().cuda().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
        self.args = args

    def __call__(self, images: Any, labels: Any) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def steps(step: Step, batches: Iterator[tuple[Any, Any]], seconds: float, least: int = 8) -> tuple[float, int]:
    """Runs steps for so long; gives the time and the number of images."""
    torch.cuda.synchronize()
    begin, images, count = time.monotonic(), 0, 0
    while time.monotonic() - begin < seconds or count < least:
        x, y = next(batches)
        step(x, y)
        images, count = images + x.shape[0], count + 1
        del x, y
    torch.cuda.synchronize()
    return time.monotonic() - begin, images


def idle_share(step: Step, batches: Iterator[tuple[Any, Any]], feed: Any, count: int = 30) -> tuple[float, Any]:
    """The share of `count` steps in which no kernel ran on the device, and the feed's own figure."""
    from torch.profiler import ProfilerActivity, profile

    before = feed.stall()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        steps(step, batches, 0, count)
    after = feed.stall()
    spans = []
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA and event.time_range.end > event.time_range.start:
            # Copies run on an engine of their own, beside the step.
            if "Memcpy" not in event.name and "Memset" not in event.name and "warpfeed" not in event.name:
                spans.append((event.time_range.start, event.time_range.end))
    spans.sort()
    if not spans:
        raise RuntimeError("the profiler saw no kernels")
    busy, at = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, at))
        at = max(at, end)
    own = None
    if before is not None:
        seconds = after[0] - before[0]
        own = {"host": (after[1] - before[1]) / seconds, "device": (after[2] - before[2]) / seconds}
    return 1 - busy / (at - spans[0][0]), own


def attempt(what: str, run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as e:
        print(f"    {what}: {type(e).__name__}: {e}", flush=True)
        traceback.print_exc(limit=3)
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folder")
    parser.add_argument("--models", default="resnet18,resnet50")
    parser.add_argument("--feeds", default=",".join(feed.name for feed in FEEDS))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--workers", type=int, default=0, help="threads or processes; 0 is one a core")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=480, help="for everything")
    parser.add_argument("--json")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch finds no CUDA device", file=sys.stderr)
        return 1
    began = time.monotonic()
    wanted = [feed for feed in FEEDS if feed.name in args.feeds.split(",")]
    if not args.folder:
        wanted = [feed for feed in wanted if feed in (Repeated, Warpfeed)]
    models = args.models.split(",")
    cores = len(os.sched_getaffinity(0))
    print(f"{torch.cuda.get_device_name()}, {cores} cores, torch {torch.__version__}, batch {args.batch}, side {args.side}", flush=True)
    # A quarter of the time is for warming up, profiling and opening.
    window = max(2.0, 0.7 * args.seconds / (len(models) * len(wanted) * (args.rounds + 1)))
    results: dict[tuple[str, str], dict[str, Any]] = {}

    for model in models:
        step = attempt(model, lambda: Step(model, args))
        if step is None:
            continue
        for turn in range(args.rounds):
            for make in wanted:
                result = results.setdefault((model, make.name), {"rates": [], "idle": None, "own": None})
                if turn > 0 and not result["rates"]:
                    continue
                if time.monotonic() - began > args.seconds:
                    break
                print(f"  {model}, round {turn + 1}, {make.name}", flush=True)

                def measured() -> None:
                    feed = make(args)
                    batches = iter(feed)
                    steps(step, batches, min(3.0, window / 3))
                    seconds, images = steps(step, batches, window)
                    result["rates"].append(images / seconds)
                    if turn == 0:
                        share = attempt("profile", lambda: idle_share(step, batches, feed))
                        if share is not None:
                            result["idle"], result["own"] = share
                    getattr(feed, "close", lambda: None)()

                attempt(make.name, measured)
                torch.cuda.empty_cache()

    print(f"\n{'model':<10} {'fed by':<16} {'images/s':>9} {'of repeated':>12} {'rounds':>24} {'GPU idle':>9} {'stall':>7} {'waited':>7}")
    percent = lambda x: "" if x is None else f"{100 * x:.1f} %"  # noqa: E731
    for (model, name), result in results.items():
        rates = result["rates"]
        if not rates:
            print(f"{model:<10} {name:<16} {'failed':>9}")
            continue
        rate = statistics.median(rates)
        result["median"] = rate
        full = results.get((model, "repeated"), {}).get("median")
        own = result["own"] or {}
        rounds = " ".join(f"{rate:.0f}" for rate in rates)
        print(
            f"{model:<10} {name:<16} {rate:>9.0f} {percent(rate / full if full else None):>12} {rounds:>24} "
            f"{percent(result['idle']):>9} {percent(own.get('device')):>7} {percent(own.get('host')):>7}"
        )
    print(f"{time.monotonic() - began:.0f} s")
    if args.json:
        with open(args.json, "w") as out:
            json.dump({f"{model}/{name}": result for (model, name), result in results.items()}, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
