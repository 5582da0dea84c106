"""Trains ResNet-18 and ResNet-50 on one GPU with different loaders, in alternating runs.

    python benches/train.py --data train.lmdb --folder imagenet/train [--seconds 600] [--json out.json]

warpfeed reads `--data` (an LMDB, shards or a folder). torch's DataLoader and DALI read the class
folders in `--folder`. The loaders (`--feeds`) are:

- `repeated`: no loader; the same device batch in every step, which measures the step alone;
- `warpfeed`: `device="cuda"`, bf16, channels last, normalized on the device;
- `warpfeed auto`, `warpfeed gpu`: the same with `decode_on="auto"` or `decode_on="gpu"`;
- `warpfeed folder`, `warpfeed folder auto`: like `warpfeed` and `warpfeed auto`, but read
  `--folder`;
- `torch`: torch.utils.data.DataLoader with torchvision's decoder and transforms on `uint8`,
  page-locked memory and non-blocking copies, normalized on the device;
- `dali FRACTION`, such as `dali 0.65`: a DALI pipeline with the `mixed` decoder, which sends this
  fraction of the images to the hardware decoder.

In an epoch of torch and DALI, the photographs are repeated until there are at least 50,000 samples.

Images/s are medians over the rounds. `stall` is the fraction of the time in which the training
stream waited for a batch, and `waited` is the fraction in which the host waited. Both come from
warpfeed's statistics of the last round; `idle.py` compares them with torch's clocks. If a loader
fails, its error is printed, and the measurement continues with the other loaders.
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

EPOCH = 50_000
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


class Warpfeed:
    name = "warpfeed"
    path = "data"
    decode_on = "cpu"
    more: dict[str, Any] = {}

    def __init__(self, args: argparse.Namespace) -> None:
        import warpfeed

        self.loader = warpfeed.Loader(
            getattr(args, self.path), batch_size=args.batch, shuffle=True, seed=42, augment=warpfeed.Augment.train(args.side),
            device="cuda", dtype="bf16", normalize="imagenet", drop_last=True, num_workers=args.workers or None,
            unlabeled=True, decode_on=self.decode_on, **self.more,
        )  # fmt: skip

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for images, labels in forever(self.loader):
            yield images, labels.clamp_min(0)

    def clocks(self) -> dict[str, float]:
        """Returns the seconds within epochs, the seconds that the host waited, and the total
        duration and number of waits on the device."""
        stats = self.loader.stats()
        stall = stats.get("stall") or {"seconds": 0.0, "count": 0}
        waited = stats["waited_seconds"]
        return {"seconds": stats["seconds"], "waited": waited, "stall": stall["seconds"], "stalls": stall["count"]}

    def close(self) -> None:
        stats = self.loader.stats()
        on_device = stats["images_sent_to_device"] / max(1, stats["prepared_samples"])
        print(f"    {100 * on_device:.0f}% sent to the device. {self.loader.verdict()}", flush=True)
        self.loader.close()


class WarpfeedAuto(Warpfeed):
    name = "warpfeed auto"
    decode_on = "auto"


class WarpfeedGpu(Warpfeed):
    name = "warpfeed gpu"
    decode_on = "gpu"


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
        # The queue drains at the end of each epoch, so a small dataset is repeated.
        repeated = torch.utils.data.ConcatDataset([data] * -(-EPOCH // len(data)))
        workers = args.workers or len(os.sched_getaffinity(0))
        self.loader = torch.utils.data.DataLoader(
            repeated,
            args.batch,
            shuffle=True,
            num_workers=workers,
            pin_memory=True,
            drop_last=True,
            persistent_workers=True,
        )

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for images, labels in forever(self.loader):
            images = images.to("cuda", non_blocking=True).to(memory_format=torch.channels_last)
            yield ((images - self.mean) / self.std).bfloat16(), labels.to("cuda", non_blocking=True)


class Dali:
    name = "dali"
    # Fraction of the images for the hardware decoder.
    load = 0.0

    def __init__(self, args: argparse.Namespace) -> None:
        from nvidia.dali import fn, pipeline_def, types
        from nvidia.dali.plugin.pytorch import DALIGenericIterator
        from torchvision import datasets

        threads = args.workers or len(os.sched_getaffinity(0))

        device = torch.cuda.current_device()
        samples = datasets.ImageFolder(args.folder).samples
        paths, classes = map(list, zip(*samples * -(-EPOCH // len(samples)), strict=True))

        @pipeline_def(batch_size=args.batch, num_threads=threads, device_id=device, prefetch_queue_depth=4)
        def pipeline() -> Any:
            files, labels = fn.readers.file(
                files=paths, labels=classes, random_shuffle=True, name="files", prefetch_queue_depth=2
            )
            hints = {"preallocate_width_hint": 600, "preallocate_height_hint": 600}
            images = fn.decoders.image_random_crop(
                files, device="mixed", output_type=types.RGB, hw_decoder_load=self.load, **hints
            )
            images = fn.resize(images, resize_x=args.side, resize_y=args.side)
            mean, std = [m * 255 for m in MEAN], [s * 255 for s in STD]
            images = fn.crop_mirror_normalize(
                images, dtype=types.FLOAT16, output_layout="HWC", mean=mean, std=std, mirror=fn.random.coin_flip()
            )
            return images, labels.gpu()

        self.loader = DALIGenericIterator([pipeline()], ["image", "label"], reader_name="files", auto_reset=True)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for [batch] in forever(self.loader):
            yield batch["image"].permute(0, 3, 1, 2).to(torch.bfloat16), batch["label"].squeeze(-1).long()


def dali(load: str) -> type[Dali]:
    return type("Dali", (Dali,), {"name": f"dali {load}", "load": float(load)})


class WarpfeedFolderAuto(WarpfeedFolder):
    name = "warpfeed folder auto"
    decode_on = "auto"


FEEDS = [Repeated, Warpfeed, WarpfeedAuto, WarpfeedGpu, WarpfeedFolder, WarpfeedFolderAuto, Torch]
FEEDS += [dali("0.65"), dali("0.9")]


def feeds(names: str) -> list[Any]:
    """Returns the loaders with these names, which are comma-separated."""
    known = {feed.name: feed for feed in FEEDS}
    expected = names.split(",")
    if unknown := [name for name in expected if name not in known and not name.startswith("dali ")]:
        sys.exit(f"--feeds: unknown {', '.join(unknown)}: expected {', '.join(known)}, or `dali FRACTION`")
    return [known.get(name) or dali(name.removeprefix("dali ")) for name in expected]


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


def steps(step: Step, batches: Iterator[tuple[Any, Any]], seconds: float, min_steps: int = 8) -> tuple[float, int]:
    """Runs for `seconds`, and at least `min_steps`. Returns the elapsed time and the number of
    images."""
    torch.cuda.synchronize()
    begin, images, count = time.monotonic(), 0, 0
    while time.monotonic() - begin < seconds or count < min_steps:
        x, y = next(batches)
        step(x, y)
        images, count = images + x.shape[0], count + 1
        del x, y
    torch.cuda.synchronize()
    return time.monotonic() - begin, images


def attempt(name: str, run: Callable[[], Any]) -> Any:
    """Returns the result of `run`. If `run` raises an exception, prints it and returns None."""
    try:
        return run()
    except Exception as e:
        print(f"    {name}: {type(e).__name__}: {e}", flush=True)
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
    parser.add_argument("--workers", type=int, default=0, help="threads or processes; 0 means one per core")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=480, help="total time")
    parser.add_argument("--window", type=float, help="seconds per measurement; derived from --seconds by default")
    parser.add_argument("--warmup", type=float, help="seconds of warm-up before the window; derived from the window by default")
    parser.add_argument("--json")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch found no CUDA device", file=sys.stderr)
        return 1
    began = time.monotonic()
    expected = feeds(args.feeds)
    if not args.folder:
        expected = [feed for feed in expected if not issubclass(feed, (WarpfeedFolder, Torch, Dali))]
    models = args.models.split(",")
    cores = len(os.sched_getaffinity(0))
    machine = f"{torch.cuda.get_device_name()}, {cores} cores, torch {torch.__version__}"
    print(f"{machine}, batch {args.batch}, side {args.side}", flush=True)
    # Reserve part of the time for opening loaders and for warming up.
    window = args.window or max(2.0, 0.7 * args.seconds / (len(models) * len(expected) * (args.rounds + 1)))
    results: dict[tuple[str, str], dict[str, Any]] = {}

    for model in models:
        step = attempt(model, lambda: Step(model, args))
        if step is None:
            continue
        for round_index in range(args.rounds):
            for make in expected:
                result = results.setdefault((model, make.name), {"rates": [], "own": None})
                if round_index > 0 and not result["rates"]:
                    continue
                if time.monotonic() - began > args.seconds:
                    break
                print(f"  {model}, round {round_index + 1}, {make.name}", flush=True)

                def measure() -> None:
                    feed = make(args)
                    batches = iter(feed)
                    steps(step, batches, 0, 1)  # the warm-up begins with the first batch
                    steps(step, batches, args.warmup or min(3.0, window / 3))
                    clocks = getattr(feed, "clocks", lambda: None)
                    before = clocks()
                    seconds, images = steps(step, batches, window)
                    result["rates"].append(images / seconds)
                    if before is not None:
                        after = clocks()
                        passed = after["seconds"] - before["seconds"]
                        result["own"] = {name: (after[name] - before[name]) / passed for name in ("stall", "waited")}
                    getattr(feed, "close", lambda: None)()

                attempt(make.name, measure)
                torch.cuda.empty_cache()

    print(
        f"\n{'model':<10} {'fed by':<16} {'images/s':>9} {'of repeated':>12} {'rounds':>24} {'stall':>7} {'waited':>7}"
    )
    percent = lambda x: "" if x is None else f"{100 * x:.1f}%"  # noqa: E731
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
            f"{percent(own.get('stall')):>7} {percent(own.get('waited')):>7}"
        )
    print(f"{time.monotonic() - began:.0f} s")
    if args.json:
        with open(args.json, "w") as out:
            json.dump({f"{model}/{name}": result for (model, name), result in results.items()}, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
