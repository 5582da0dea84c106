"""Compares the images/s of complete recipes in warpfeed and in torchvision v2 with a `DataLoader`.

    python benches/recipes.py FOLDER [--only simclr] [--rounds 3] [--seconds 8] [--json out.json]
    python benches/recipes.py FOLDER --device cuda --cores 4 --batch 256 --only rand_augment

FOLDER contains class folders of JPEGs. Batches are normalized `f32` in host memory, or `u8` in the
albumentations recipe. With `--device cuda`, batches are in GPU memory: warpfeed decodes on the GPU,
and the `DataLoader` delivers page-locked batches that the loop uploads. With `--packed`, warpfeed
reads the given dataset, which is FOLDER after `warpfeed pack`. Each run is a separate process,
pinned to `--cores`. Runs alternate, in an order that changes from round to round. Ratios are
medians over the rounds, with the lowest and the highest ratio.

| recipe | warpfeed | with a `DataLoader` |
|---|---|---|
| `rand_augment` | `Augment.train(224).rand_augment(2, 9)` | torchvision v2 on `uint8` tensors: `RandAugment(2, 9)` |
| `three_augment` | `Augment.train(224).three_augment()` | v2: one of grayscale, solarize and blur, then a jitter |
| `simclr` | `views=Augment.simclr_views(224)`; pairs of views per second | v2: the image is decoded once for two views |
| `albumentations` | crop and flip in Rust, colors with `image_transform` | crop, flip and colors in albumentations, after OpenCV's decoder |

Both loaders use one thread or process per core. In `albumentations`, warpfeed uses one thread and
one process per core. An epoch contains each image `--repeat` times, so that epoch boundaries do not
influence the result.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

SIDE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def colors() -> list[Any]:
    """Returns the color steps of the albumentations recipe, which both loaders use."""
    import albumentations as a

    jitter = a.ColorJitter(brightness=(0.6, 1.4), contrast=(0.6, 1.4), saturation=(0.6, 1.4), hue=(-0.1, 0.1), p=0.8)
    return [jitter, a.ToGray(p=0.2), a.GaussianBlur(sigma_limit=(0.1, 2.0), p=0.5), a.Solarize(p=0.2)]


def warpfeed_batches(name: str, args: argparse.Namespace) -> Iterator[int]:
    import warpfeed

    train = warpfeed.Augment.train(SIDE)
    options: dict[str, Any] = {"normalize": "imagenet"}
    if name == "simclr":
        options["views"] = warpfeed.Augment.simclr_views(SIDE)
    elif name == "albumentations":
        import albumentations as a

        options = {"augment": train, "image_transform": a.Compose(colors()), "image_transform_processes": args.cores}
    else:
        options["augment"] = train.rand_augment(2, 9) if name == "rand_augment" else train.three_augment()
    if args.device == "cuda":
        options |= {"device": "cuda", "decode_on": "gpu"}
    loader = warpfeed.Loader(
        args.packed or args.folder, batch_size=args.batch, shuffle=True, drop_last=True, repeat=args.repeat, num_workers=args.cores,
        layout="nchw", output="torch", **options,
    )  # fmt: skip
    while True:
        for batch in loader:
            yield len(batch["label"] if isinstance(batch, dict) else batch[1])


def transform(name: str) -> Any:
    import torch
    from torchvision.transforms import v2

    crop = [v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()]
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    if name == "rand_augment":
        return v2.Compose([*crop, v2.RandAugment(2, 9), *last])
    if name == "three_augment":
        choices = [v2.RandomGrayscale(1.0), v2.RandomSolarize(128, 1.0), v2.GaussianBlur(9, (0.1, 2.0))]
        return v2.Compose([*crop, v2.RandomChoice(choices), v2.ColorJitter(0.3, 0.3, 0.3), *last])
    jitter = v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8)
    blur = v2.RandomApply([v2.GaussianBlur(SIDE // 10 | 1, (0.1, 2.0))], 0.5)
    view = v2.Compose([*crop, jitter, v2.RandomGrayscale(0.2), blur, *last])
    return lambda original: (view(original), view(original))


class Images:
    """The images in class folders, each repeated `args.repeat` times."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        folders = sorted(path for path in Path(args.folder).iterdir() if path.is_dir())
        files = [(str(path), label) for label, folder in enumerate(folders) for path in sorted(folder.iterdir())]
        if not files:
            raise SystemExit(f"{args.folder}: no class folders with images")
        self.files = files * args.repeat
        self.name = name
        self.transform: Any = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        # Each worker process creates the transform, because it contains functions that cannot be
        # pickled.
        path, label = self.files[index]
        if self.name == "albumentations":
            import albumentations as a
            import cv2

            if self.transform is None:
                cv2.setNumThreads(0)
                self.transform = a.Compose([a.RandomResizedCrop((SIDE, SIDE)), a.HorizontalFlip(), *colors()])
            original = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
            return self.transform(image=original)["image"].transpose(2, 0, 1).copy(), label
        from torchvision.io import decode_image, read_file

        if self.transform is None:
            self.transform = transform(self.name)
        return self.transform(decode_image(read_file(path), mode="RGB")), label


def torch_batches(name: str, args: argparse.Namespace) -> Iterator[int]:
    import torch

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Images(name, args), args.batch, shuffle=True, drop_last=True, num_workers=args.cores, persistent_workers=True,
        prefetch_factor=4, pin_memory=args.device == "cuda",
    )  # fmt: skip
    while True:
        for images, labels in loader:
            if args.device == "cuda":
                images = images.to("cuda", non_blocking=True)
            yield len(labels)


SIDES = {"warpfeed": warpfeed_batches, "torch": torch_batches}
RECIPES = ("rand_augment", "three_augment", "simclr", "albumentations")


def measure(batches: Iterator[int], args: argparse.Namespace) -> float:
    """Measures the images/s after a warm-up, during which processes start."""
    next(batches)
    begin = time.monotonic()
    while time.monotonic() - begin < args.warmup:
        next(batches)
    begin, samples = time.monotonic(), 0
    while time.monotonic() - begin < args.seconds:
        samples += next(batches)
    if args.device == "cuda":
        import torch

        torch.cuda.synchronize()
    return samples / (time.monotonic() - begin)


def run(recipe: str, side: str, args: argparse.Namespace) -> float:
    """Returns the images/s of one loader, measured in a child process."""
    command = [sys.executable, __file__, *sys.argv[1:], "--run", recipe, side]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode != 0:
        raise SystemExit(f"{recipe}, {side}:\n{process.stdout}{process.stderr}")
    return float(process.stdout.split()[-1])


def versions() -> dict[str, str]:
    names = ("warpfeed", "torch", "torchvision", "albumentations", "numpy")
    results = {}
    for name in names:
        try:
            results[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            results[name] = "not installed as a package"
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=RECIPES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--warmup", type=float, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--packed", type=Path, help="dataset that warpfeed reads instead of FOLDER")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
        recipe, side = args.run
        print(measure(SIDES[side](recipe, args), args), flush=True)
        # A normal exit would wait until the `DataLoader` processes have finished their batches.
        os._exit(0)

    rates: dict[str, dict[str, list[float]]] = {recipe: {side: [] for side in SIDES} for recipe in args.only}
    for round_index in range(args.rounds):
        for recipe in args.only:
            for side in sorted(SIDES, reverse=round_index % 2 == 1):
                rates[recipe][side].append(run(recipe, side, args))
    print("| recipe | warpfeed, images/s | torch `DataLoader`, images/s | ratio |\n|---|---|---|---|")
    for recipe, by_side in rates.items():
        ratios = [ours / theirs for ours, theirs in zip(by_side["warpfeed"], by_side["torch"], strict=True)]
        sides = [by_side[side] for side in SIDES]
        cells = [f"{statistics.median(side):,.0f} ({min(side):,.0f} to {max(side):,.0f})" for side in sides]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| `{recipe}` | {' | '.join(cells)} | {ratio} |")
    facts = {"cores": args.cores, "machine": platform.platform(), "date": time.strftime("%Y-%m-%d"), **versions()}
    print(", ".join(f"{name} {fact}" for name, fact in facts.items()))
    if args.json:
        args.json.write_text(json.dumps({"rates": rates, "facts": facts, "options": vars(args)}, default=str, indent=1))


if __name__ == "__main__":
    main()
