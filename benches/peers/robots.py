#!/usr/bin/env python3
"""Measures frames per second of robot episodes: warpfeed, LeRobot's dataset class, and other readers.

    robots.py draw FOLDER [--episodes 4] [--frames 100]    # FOLDER/videos
    python -m warpfeed pack FOLDER/videos FOLDER/packed --frames
    robots.py measure FOLDER [--recipes windows single] [--peers packed av1 lerobot decord lance dav1d] [--turns 3]
              [--cores 2] [--sweep 0 1 2 4] [--seconds 10] [--warmup 3]

The data is similar to ALOHA: four 640x480 cameras, AV1 with LeRobot's default settings. A sample of the `windows`
recipe has eight frames of each camera, and a sample of the `single` recipe has one. A loader delivers shuffled f32
batches of whole frames from 0 to 1 with the actions. Each measurement runs in a separate process, and the loaders take
turns. The first turn tries each number of workers in `--sweep`, and the best one is measured in all turns.

packed   warpfeed, one worker per core, after `warpfeed pack --frames`
av1      warpfeed, one worker per core, on the videos that LeRobot reads
lerobot  `LeRobotDataset` in a DataLoader, with torchcodec and with PyAV
decord   `LeRobotDataset` with decord as its decoder
lance    a Lance table with a JPEG of quality 95 per frame, read with `take`, decoded with torchvision, in a DataLoader
dav1d    one thread per core, each decoding a camera from the first frame to the last, with PyAV. This is the limit of
         the decoder: no frames are skipped, converted or put into batches.
"""

import argparse
import io
import itertools
import json
import pathlib
import queue
import sys
import threading

import numpy as np

import turns
from cpu import measure

CAMERAS = [f"observation.images.{name}" for name in ("high", "low", "left", "right")]
WIDTH, HEIGHT, FPS = 640, 480, 50
#: For each recipe: samples per batch, and frames of each camera per sample.
RECIPES = {"windows": (4, 8), "single": (16, 1)}


def image(camera, frame, rng):
    """Draws smooth colors with moving edges and some noise, like a photograph of a table."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    phase = camera + frame / 30
    base = np.stack([np.sin(x / (90 + 20 * c) + phase + c) + np.cos(y / (70 + 10 * c) - phase) for c in range(3)], -1)
    edges = ((x + 3 * frame) // 80 + (y + frame) // 60) % 2
    noise = rng.normal(0, 4, (HEIGHT // 2, WIDTH // 2, 1)).repeat(2, 0).repeat(2, 1)
    return np.clip(110 + 40 * base + 35 * edges[..., None] + noise, 0, 255).astype(np.uint8)


def draw(folder, episodes, frames):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    video = {"dtype": "video", "shape": (HEIGHT, WIDTH, 3), "names": ["height", "width", "channels"]}
    numbers = {"dtype": "float32", "shape": (14,), "names": None}
    features = {**dict.fromkeys(CAMERAS, video), "action": numbers, "observation.state": numbers}
    data = LeRobotDataset.create("drawn/aloha", FPS, features, root=folder / "videos")
    rng = np.random.default_rng(0)
    for episode in range(episodes):
        for frame in range(frames):
            drawn = {name: rng.random(14, np.float32) for name in ("action", "observation.state")}
            drawn |= {name: image(camera + episode, frame, rng) for camera, name in enumerate(CAMERAS)}
            data.add_frame({**drawn, "task": "fold the towel"})
        data.save_episode()
    data.finalize()


def deltas(count):
    return {name: [-i / FPS for i in range(count - 1, -1, -1)] for name in CAMERAS} if count > 1 else None


def warpfeed(options, recipe, path):
    import warpfeed as wf

    size, count = RECIPES[recipe]
    fields = {name: wf.Image(name, frames=count) if count > 1 else wf.Image(name) for name in CAMERAS}
    loader = wf.Loader(
        wf.LeRobot(path, delta_timestamps=deltas(count)), fields={**fields, "action": wf.NdArray("f32", [14])},
        augment=wf.Augment.resize((HEIGHT, WIDTH)), dtype="f32", normalize=([0, 0, 0], [1, 1, 1]), batch_size=size,
        shuffle=True, seed=0, num_workers=options.workers, drop_last=True, output="torch",
    )  # fmt: skip
    while True:
        for batch in loader:
            yield len(batch["action"]) * count * len(CAMERAS)


def packed(options, recipe):
    return warpfeed(options, recipe, options.folder / "packed")


def av1(options, recipe):
    return warpfeed(options, recipe, options.folder / "videos")


def torch_batches(options, recipe, data, **more):
    import torch

    size, count = RECIPES[recipe]
    if options.workers:
        more |= {"persistent_workers": True, "prefetch_factor": 2}
    loader = torch.utils.data.DataLoader(
        data, batch_size=size, shuffle=True, num_workers=options.workers, drop_last=True, **more
    )
    for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
        yield len(batch["action"]) * count * len(CAMERAS)


def lerobot(options, recipe):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    data = LeRobotDataset(
        "drawn/aloha", root=options.folder / "videos", delta_timestamps=deltas(RECIPES[recipe][1]),
        video_backend=options.decoder,
    )  # fmt: skip
    return torch_batches(options, recipe, data)


def camera_files(options):
    return [sorted((options.folder / "videos" / "videos" / name).rglob("*.mp4")) for name in CAMERAS]


def decord(options, recipe):
    import decord
    import torch
    from lerobot.datasets import lerobot_dataset

    readers = {}
    try:
        decord.VideoReader(str(camera_files(options)[0][0]))
    except decord.DECORDError:
        turns.unsupported("decord does not decode AV1")

    def decode(path, timestamps, *_):
        if path not in readers:
            readers[path] = decord.VideoReader(str(path), num_threads=1)
        frames = readers[path].get_batch([round(time * FPS) for time in timestamps]).asnumpy()
        return torch.from_numpy(frames).permute(0, 3, 1, 2).float() / 255

    lerobot_dataset.decode_video_frames = decode
    return lerobot(options, recipe)


def column(name):
    """Returns the name of a camera's column. Lance does not accept dots in names."""
    return name.replace(".", "_")


class Lance:
    """The frames in a Lance table. Reads all rows of a batch with one call."""

    def __init__(self, path, count, episodes):
        self.path, self.count, self.table = path, count, None
        #: For each sample, the first row of its episode.
        self.first = [first for first, end in episodes for _ in range(first, end)]

    def __len__(self):
        return len(self.first)

    def __getitems__(self, samples):
        import lance
        import torch
        from torchvision.io import decode_jpeg

        self.table = self.table or lance.dataset(self.path)
        rows = [[max(i - k, self.first[i]) for k in range(self.count - 1, -1, -1)] for i in samples]
        wanted = sorted({row for window in rows for row in window})
        at = {row: n for n, row in enumerate(wanted)}
        read = self.table.take(wanted)
        actions = torch.from_numpy(np.stack(read["action"].to_numpy()))
        found = [{"action": actions[at[i]]} for i in samples]
        for name in CAMERAS:
            jpegs = [torch.frombuffer(bytearray(jpeg.as_py()), dtype=torch.uint8) for jpeg in read[column(name)]]
            frames = decode_jpeg(jpegs)
            for sample, window in zip(found, rows, strict=True):
                sample[name] = torch.stack([frames[at[row]] for row in window]).float().div_(255)
        return found


def lance(options, recipe):
    import av
    import lance
    import pyarrow
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    data, path = LeRobotDataset("drawn/aloha", root=options.folder / "videos"), options.folder / "frames.lance"
    if not path.exists():
        columns = {"action": pyarrow.array(data.hf_dataset.with_format("numpy")["action"][:].tolist())}
        for name, files in zip(CAMERAS, camera_files(options), strict=True):
            jpegs = []
            for file in files:
                for frame in av.open(str(file)).decode(video=0):
                    jpegs.append(io.BytesIO())
                    frame.to_image().save(jpegs[-1], "jpeg", quality=95)
            columns[column(name)] = pyarrow.array([jpeg.getvalue() for jpeg in jpegs])
        new = path.with_suffix(".new")
        lance.write_dataset(pyarrow.table(columns), str(new), mode="overwrite")
        new.rename(path)
    episodes = [(episode["dataset_from_index"], episode["dataset_to_index"]) for episode in data.meta.episodes]
    # Lance's threads do not survive a fork.
    more = {"multiprocessing_context": "spawn"} if options.workers else {}
    return torch_batches(options, recipe, Lance(str(path), RECIPES[recipe][1], episodes), **more)


def dav1d(options, recipe):
    import av

    frames = queue.SimpleQueue()

    def decode(files):
        for file in itertools.cycle(files):
            with av.open(str(file)) as video:
                stream = video.streams.video[0]
                stream.codec_context.thread_count = 1
                assert stream.codec_context.codec.name == "libdav1d", stream.codec_context.codec.name
                for _ in video.decode(stream):
                    frames.put(1)

    for files in camera_files(options)[: options.workers]:
        threading.Thread(target=decode, args=(files,), daemon=True).start()
    while True:
        yield frames.get()


# For each loader: its function, and the packages whose versions are printed.
PEERS = {
    "packed": (packed, ["warpfeed"]),
    "av1": (av1, ["warpfeed"]),
    "lerobot": (lerobot, ["lerobot", "torchcodec", "torch"]),
    "decord": (decord, ["decord", "lerobot"]),
    "lance": (lance, ["pylance", "torchvision"]),
    "dav1d": (dav1d, ["av"]),
}


def settings(options, peer):
    """Returns the settings with which a loader is measured."""
    if peer in ("packed", "av1", "dav1d"):
        return [(f"--workers={options.cores}",)]
    workers = [f"--workers={number}" for number in options.sweep]
    decoders = [("--decoder=torchcodec",), ("--decoder=pyav",)] if peer == "lerobot" else [()]
    return [(*decoder, number) for decoder in decoders for number in workers]


def compare(options):
    given = [f"--seconds={options.seconds}", f"--warmup={options.warmup}"]
    versions = {peer: packages for peer, (_, packages) in PEERS.items()}
    failed = False
    for recipe in options.recipes:

        def one(peer, setting, recipe=recipe):
            return turns.run(__file__, ["measure", options.folder, "--one", peer, recipe, *given, *setting])

        loaders = {peer: settings(options, peer) for peer in options.peers}
        failed |= turns.compare(one, loaders, options.turns, recipe, "frames/s", versions)
    return int(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["draw", "measure"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--frames", type=int, default=100, help="frames per episode")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--turns", type=int, default=3, help="number of measurements of each loader")
    parser.add_argument("--cores", type=int, default=2, help="threads of warpfeed and of dav1d")
    parser.add_argument("--sweep", type=int, nargs="+", default=[0, 1, 2, 4], help="workers of the other loaders")
    parser.add_argument("--seconds", type=float, default=10, help="seconds to measure")
    parser.add_argument("--warmup", type=float, default=3, help="seconds of warm-up, from the first batch on")
    parser.add_argument("--workers", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--decoder", default="torchcodec", help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step == "draw":
        return draw(options.folder, options.episodes, options.frames)
    if options.one:
        peer, recipe = options.one
        batches = PEERS[peer][0](options, recipe)
        return turns.finish(measure(batches, options))
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
