"""Compares the losses of training with warpfeed and with the framework's own loader.

    python benches/losses.py PHOTOGRAPHS --train-py pytorch-image-models/train.py --work EMPTY_FOLDER [--json out.json]

Two recipes train from random weights, each with several data pipelines (`--sides`). The model, the
optimizer, the steps and the seeds stay the same.

| recipe | with the framework's loader (`own`) | with warpfeed |
|---|---|---|
| `a3`: timm's ResNet-50 A3 at 160 pixels | timm's `train.py` | `examples/timm_train.py` runs the same script |
| `yolo`: Ultralytics' detection with mosaics | `DetectionTrainer` | the trainer of `examples/yolo_trainer.py` |

PHOTOGRAPHS contains class folders of JPEGs. `a3` learns ten classes: the list of JPEGs, sorted by
path and cut into ten runs of equal length. The photographs have no boxes, so `yolo` learns to find
synthetic objects: rectangles, ellipses and triangles that are cut from one photograph and pasted
into a different one.

The table shows, for each epoch, the mean loss over the seeds, with the lowest and the highest loss.
A spread is the distance between the lowest and the highest loss. Two means agree if they differ by
no more than the larger of the two spreads. `control` is warpfeed with a different recipe: without
RandAugment or without mosaics. If the control also agrees, the comparison cannot distinguish the
recipes.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

#: The compared loaders. "own" is the framework's own loader.
SIDES = ("own", "warpfeed", "control")
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
#: Recipe A3 of "ResNet strikes back" (Wightman et al., 2021), as flags of timm's train.py. The
#: learning rate for a batch of 2,048 is scaled by the square root, as timm does for LAMB.
A3 = (
    "--img-size 160 --opt lamb --sched cosine --lr-base 0.008 --lr-base-size 2048 --lr-base-scale sqrt --weight-decay 0.02 "
    "--bce-loss --smoothing 0.0 --mixup 0.1 --cutmix 1.0 --train-interpolation bicubic --crop-pct 0.95 "
    "--warmup-epochs 1 --log-interval 1000 --checkpoint-hist 1"
).split()
CLASSES = 10


def images(folder: str) -> list[Path]:
    actual = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if len(actual) < 2 * CLASSES:
        raise SystemExit(f"{folder}: found {len(actual)} JPEGs; expected at least {2 * CLASSES}")
    return actual


def class_folders(args: argparse.Namespace, work: Path) -> None:
    """Creates ten class folders. Each photograph occurs several times in `train`, to make
    epochs longer."""
    result = images(args.photographs)
    for part, copies in (("train", args.copies), ("val", 1)):
        for number, path in enumerate(result):
            folder = work / "a3" / part / f"class{number * CLASSES // len(result)}"
            folder.mkdir(parents=True, exist_ok=True)
            for copy in range(copies):
                (folder / f"{path.stem}-{copy}.jpg").symlink_to(path.resolve())


def detection_set(args: argparse.Namespace, work: Path) -> None:
    """Creates photographs with pasted objects, in YOLO's directory layout."""
    from PIL import Image, ImageDraw

    draws, result = random.Random(1), images(args.photographs)
    photographs = []
    for path in result:
        photograph = Image.open(path).convert("RGB")
        photograph.thumbnail((args.yolo_size * 3 // 2, args.yolo_size * 3 // 2))
        photographs.append(photograph)
    for part in ("images", "labels"):
        for split in ("train", "val"):
            (work / "yolo" / part / split).mkdir(parents=True, exist_ok=True)
    for number, photograph in enumerate(photographs):
        image, lines = photograph.copy(), []
        for _ in range(draws.randint(1, 4)):
            kind = draws.randrange(3)
            other = draws.choice(photographs)
            width, height = (
                max(int(side * draws.uniform(0.15, 0.45)), 16) for side in (min(image.width, other.width), min(image.height, other.height))
            )  # fmt: skip
            left, top = draws.randint(0, image.width - width), draws.randint(0, image.height - height)
            from_left, from_top = draws.randint(0, other.width - width), draws.randint(0, other.height - height)
            mask = Image.new("L", (width, height))
            outline = ImageDraw.Draw(mask)
            if kind == 2:
                outline.polygon([(width // 2, 0), (width - 1, height - 1), (0, height - 1)], fill=255)
            else:
                (outline.rectangle, outline.ellipse)[kind]([0, 0, width - 1, height - 1], fill=255)
            image.paste(other.crop((from_left, from_top, from_left + width, from_top + height)), (left, top), mask)
            center = (left + width / 2) / image.width, (top + height / 2) / image.height
            lines.append(f"{kind} {center[0]:.6f} {center[1]:.6f} {width / image.width:.6f} {height / image.height:.6f}")
        # The trainer requires a validation set, although validation is disabled.
        split = "val" if number >= len(photographs) - 16 else "train"
        image.save(work / "yolo" / "images" / split / f"{number:06}.jpg", quality=92)
        (work / "yolo" / "labels" / split / f"{number:06}.txt").write_text("\n".join(lines) + "\n")


def a3(side: str, seed: int, args: argparse.Namespace, work: Path) -> dict[str, list[float]]:
    """Runs timm's script, and reads the losses of each epoch from its summary."""
    device = ["--device", args.device, *(["--amp"] if args.device == "cuda" else [])]
    data = ["--data-dir", str(work / "a3"), "--num-classes", str(CLASSES), "--workers", str(args.workers)]
    more = ["--model", args.a3_model, "--epochs", str(args.epochs), "-b", str(args.batch), "--seed", str(seed)]
    run = [str(args.train_py), *data, *A3, *more, *device, "--output", str(work / "runs"), "--experiment", f"{side}-{seed}"]
    if side != "control":
        run += ["--aa", "rand-m6-mstd0.5-inc1"]
    if side != "own":
        run = [str(EXAMPLES / "timm_train.py"), *run, "--no-prefetcher"]
    process = subprocess.run([sys.executable, *run], capture_output=True, text=True)
    if process.returncode != 0:
        raise SystemExit(f"a3, {side}, seed {seed}:\n{process.stdout[-3000:]}{process.stderr[-6000:]}")
    with open(work / "runs" / f"{side}-{seed}" / "summary.csv") as file:
        rows = list(csv.DictReader(file))
    return {"train": [float(row["train_loss"]) for row in rows], "evaluation": [float(row["eval_loss"]) for row in rows]}


def yolo(side: str, seed: int, args: argparse.Namespace, work: Path) -> dict[str, list[float]]:
    """Runs the trainer in a child process. Links the data into a separate folder first, because the
    trainer writes a cache next to the data."""
    folder = work / f"yolo-{side}-{seed}"
    shutil.copytree(work / "yolo", folder, copy_function=os.link)
    names = "{0: rectangle, 1: ellipse, 2: triangle}"
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {names}\n")
    out = work / f"yolo-{side}-{seed}.json"
    command = [sys.executable, __file__, *sys.argv[1:], "--work", str(work), "--run", side, str(seed), str(out)]
    process = subprocess.run(command, capture_output=True, text=True, cwd=work)
    if process.returncode != 0:
        raise SystemExit(f"yolo, {side}, seed {seed}:\n{process.stdout[-3000:]}{process.stderr[-6000:]}")
    losses: dict[str, list[float]] = json.loads(out.read_text())
    return losses


def train_yolo(side: str, seed: int, args: argparse.Namespace, work: Path, out: Path) -> None:
    """Writes the losses of each epoch to `out`."""
    if side == "own":
        from ultralytics.models.yolo.detect import DetectionTrainer as Trainer
    else:
        sys.path.insert(0, str(EXAMPLES))
        from yolo_trainer import Trainer

    losses: dict[str, list[float]] = {}

    class Quiet:
        """Turns off validation and checkpoints, which would take longer than the training."""

        def save_metrics(self, metrics: Any) -> None:
            for name, value in metrics.items():
                if name.startswith("train/"):
                    losses.setdefault(name.removeprefix("train/"), []).append(float(value))

        def validate(self) -> Any:
            return {}, 0.0

        def save_model(self) -> bool:
            return False

        def final_eval(self) -> None:
            pass

    trainer = type("QuietTrainer", (Quiet, Trainer), {})(
        overrides={
            "model": args.yolo_model, "data": str(work / f"yolo-{side}-{seed}" / "data.yaml"), "imgsz": args.yolo_size, "seed": seed,
            "batch": args.yolo_batch, "epochs": args.yolo_epochs, "device": 0 if args.device == "cuda" else "cpu",
            "workers": args.workers, "project": str(work / "runs"), "name": f"{side}-{seed}", "close_mosaic": 0,
            "mosaic": 0.0 if side == "control" else 1.0, "plots": False, "amp": False, "pretrained": False, "val": False,
        }
    )  # fmt: skip
    trainer.train()
    total = [sum(parts) for parts in zip(*losses.values(), strict=True)]
    out.write_text(json.dumps({"train": total, **losses}))


RECIPES = {"a3": a3, "yolo": yolo}


def means_agree(first: list[float], second: list[float]) -> bool:
    """Returns whether the means differ by at most the larger of the two spreads."""
    spread = max(max(first) - min(first), max(second) - min(second))
    return abs(statistics.fmean(first) - statistics.fmean(second)) <= spread


def report(recipe: str, losses: dict[str, list[dict[str, list[float]]]]) -> bool:
    """Prints the tables of a recipe. Returns whether all losses are finite, and the means of "own"
    and "warpfeed", if both were measured, agree in every epoch."""
    all_agree = True
    first = next(iter(losses.values()))[0]
    for name in first:
        print(f"\n{recipe}, {name} loss\n\n| epoch | {' | '.join(losses)} | own and warpfeed | own and control |")
        print("|---" * (len(losses) + 3) + "|")
        for epoch in range(len(first[name])):
            by_side = {side: [run[name][epoch] for run in runs] for side, runs in losses.items()}
            means = {side: f"{statistics.fmean(values):.4f}" for side, values in by_side.items()}
            cells = [f"{means[side]} ({min(values):.4f} to {max(values):.4f})" for side, values in by_side.items()]
            others = [side for side in by_side if side != "own" and "own" in by_side]
            agree = {side: means_agree(by_side["own"], by_side[side]) for side in others}
            finite = all(math.isfinite(value) for values in by_side.values() for value in values)
            all_agree &= agree.get("warpfeed", True) and finite
            words = [{None: "", True: "agree", False: "differ"}[agree.get(side)] for side in ("warpfeed", "control")]
            print(f"| {epoch + 1} | {' | '.join(cells + words)} |")
    return all_agree


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs")
    parser.add_argument("--train-py", type=Path, help="timm's train.py, from its repository")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--workers", type=int, default=3, help="processes or threads per loader")
    parser.add_argument("--parallel", type=int, default=6, help="number of training runs at a time")
    parser.add_argument("--copies", type=int, default=7, help="how many times an epoch of a3 contains each photograph")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--a3-model", default="resnet50")
    parser.add_argument("--yolo-model", default="yolo11n.yaml")
    parser.add_argument("--yolo-size", type=int, default=320)
    parser.add_argument("--yolo-batch", type=int, default=16)
    parser.add_argument("--yolo-epochs", type=int, default=10)
    parser.add_argument("--work", type=Path, required=True, help="an empty folder for data and runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    work = args.work.resolve()
    # Keep Ultralytics from looking for updates and fonts on the internet.
    os.environ.update(YOLO_OFFLINE="true", YOLO_CONFIG_DIR=str(work), YOLO_AUTOINSTALL="false", OMP_NUM_THREADS="2")
    if args.run:
        side, seed, out = args.run
        train_yolo(side, int(seed), args, work, Path(out))
        return
    if "a3" in args.only and args.train_py is None:
        parser.error("a3 needs --train-py")
    args.train_py = args.train_py and args.train_py.resolve()
    work.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    prepare = {"a3": class_folders, "yolo": detection_set}
    for recipe in args.only:
        prepare[recipe](args, work)
    runs = [(recipe, side, seed) for recipe in args.only for side in args.sides for seed in args.seeds]

    def run(what: tuple[str, str, int]) -> dict[str, list[float]]:
        recipe, side, seed = what
        since = time.monotonic()
        losses = RECIPES[recipe](side, seed, args, work)
        print(f"{recipe}, {side}, seed {seed}: {time.monotonic() - since:.0f} s", file=sys.stderr, flush=True)
        return losses

    with ThreadPoolExecutor(args.parallel) as pool:
        result = dict(zip(runs, pool.map(run, runs), strict=True))
    all_agree = True
    for recipe in args.only:
        all_agree &= report(recipe, {side: [result[recipe, side, seed] for seed in args.seeds] for side in args.sides})
    import torch

    device = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"\n{'All epochs agree' if all_agree else 'Some epochs differ'}; {device}, {time.monotonic() - begin:.0f} s")
    if args.json:
        losses = {" ".join(map(str, what)): values for what, values in result.items()}
        args.json.write_text(json.dumps({"losses": losses, "options": vars(args)}, default=str, indent=1))


if __name__ == "__main__":
    main()
