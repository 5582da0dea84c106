"""Compares how many frames of robot episodes per second LeRobot's dataset class (in a DataLoader)
and warpfeed (after `warpfeed pack --frames`) deliver.

    python robots.py draw FOLDER [--episodes 4] [--frames 100]    # FOLDER/videos and FOLDER/images
    python -m warpfeed pack FOLDER/images FOLDER/packed --frames
    python robots.py measure FOLDER [--seconds 10]

The data is similar to ALOHA: four 640x480 cameras. A sample of the `windows` recipe has eight frames of each camera,
and a sample of the `single` recipe has one. Both loaders deliver shuffled f32 batches of whole frames with the actions.
LeRobot is measured with each number of workers in `--workers` and each decoder in `--decoders`. The table states the
best combination.
"""

import argparse
import itertools
import json
import pathlib
import time

import numpy as np

CAMERAS = [f"observation.images.{name}" for name in ("high", "low", "left", "right")]
WIDTH, HEIGHT, FPS = 640, 480, 50
DELTAS = [-i / FPS for i in range(7, -1, -1)]
#: For each recipe: samples per batch, and frames of each camera per sample.
RECIPES = {"windows": (4, 8), "single": (16, 1)}


def picture(camera, frame, rng):
    """Draws smooth colors with moving edges and some noise, like a photograph of a table."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    phase = camera + frame / 30
    base = np.stack([np.sin(x / (90 + 20 * c) + phase + c) + np.cos(y / (70 + 10 * c) - phase) for c in range(3)], -1)
    edges = ((x + 3 * frame) // 80 + (y + frame) // 60) % 2
    noise = rng.normal(0, 4, (HEIGHT // 2, WIDTH // 2, 1)).repeat(2, 0).repeat(2, 1)
    return np.clip(110 + 40 * base + 35 * edges[..., None] + noise, 0, 255).astype(np.uint8)


def draw(folder, episodes, frames):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    for kind in ("video", "image"):
        features = {name: {"dtype": kind, "shape": (HEIGHT, WIDTH, 3), "names": ["height", "width", "channels"]} for name in CAMERAS}
        for name in ("action", "observation.state"):
            features[name] = {"dtype": "float32", "shape": (14,), "names": None}
        data = LeRobotDataset.create("drawn/aloha", FPS, features, root=folder / f"{kind}s", use_videos=kind == "video")
        rng = np.random.default_rng(0)
        for episode in range(episodes):
            for frame in range(frames):
                numbers = {name: rng.random(14, np.float32) for name in ("action", "observation.state")}
                images = {name: picture(i + episode, frame, rng) for i, name in enumerate(CAMERAS)}
                data.add_frame({**numbers, **images, "task": "fold the towel"})
            data.save_episode()
        if hasattr(data, "finalize"):
            data.finalize()


def rate(batches, frames, seconds):
    """Returns the frames per second of a loader. The first second is not counted."""
    count, start = 0, None
    began = time.perf_counter()
    for batch in batches:
        now = time.perf_counter()
        if start is None and now - began > 1:
            start = now
        elif start is not None:
            count += frames(batch)
            if now - start > seconds:
                return count / (now - start)
    raise RuntimeError("the dataset ended before the measurement")


def lerobot(folder, recipe, decoder, workers, seconds):
    import torch
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    size, count = RECIPES[recipe]
    deltas = {name: DELTAS for name in CAMERAS} if count > 1 else None
    data = LeRobotDataset("drawn/aloha", root=folder / "videos", delta_timestamps=deltas, video_backend=decoder)
    options = {"persistent_workers": True, "prefetch_factor": 2} if workers else {}
    loader = torch.utils.data.DataLoader(data, batch_size=size, shuffle=True, num_workers=workers, drop_last=True, **options)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    return rate(batches, lambda batch: len(batch["action"]) * count * len(CAMERAS), seconds)


def warpfeed(folder, recipe, workers, seconds):
    import warpfeed as wf

    size, count = RECIPES[recipe]
    data = wf.LeRobot(folder / "packed", delta_timestamps={name: DELTAS for name in CAMERAS} if count > 1 else None)
    fields = {name: wf.Image(name, frames=count) if count > 1 else wf.Image(name) for name in CAMERAS}
    loader = wf.Loader(
        data, fields={**fields, "action": wf.NdArray("f32", [14])}, augment=wf.Augment.resize((HEIGHT, WIDTH)),
        dtype="f32", batch_size=size, shuffle=True, seed=0, num_workers=workers, drop_last=True, output="torch",
    )
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    return rate(batches, lambda batch: len(batch["action"]) * count * len(CAMERAS), seconds)


def measure(folder, workers, decoders, seconds):
    for recipe in RECIPES:
        found = {}
        for decoder, count in itertools.product(decoders, workers):
            found[decoder, count] = lerobot(folder, recipe, decoder, count, seconds)
        (decoder, count), best = max(found.items(), key=lambda item: item[1])
        own = {count: warpfeed(folder, recipe, count, seconds) for count in (1, 2)}
        result = {
            "recipe": recipe, "lerobot": round(best), "decoder": decoder, "workers": count,
            "all": {f"{d} {w}": round(r) for (d, w), r in found.items()},
            "warpfeed": {w: round(r) for w, r in own.items()}, "ratio": round(max(own.values()) / best, 2),
        }
        print("RESULT", json.dumps(result), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["draw", "measure"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--decoders", nargs="+", default=["torchcodec", "pyav"])
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    if args.step == "draw":
        draw(args.folder, args.episodes, args.frames)
    else:
        measure(args.folder, args.workers, args.decoders, args.seconds)


if __name__ == "__main__":
    main()
