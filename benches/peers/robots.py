#!/usr/bin/env python3
"""Measures frames per second of robot episodes: warpfeed, LeRobot's dataset class, and other readers.

    robots.py draw FOLDER [--episodes 4] [--frames 100]    # FOLDER/videos, in AV1
    robots.py encode FOLDER --videos h264 h264_30          # FOLDER/h264 and FOLDER/h264_30
    python -m warpfeed pack FOLDER/videos FOLDER/packed --frames
    robots.py measure FOLDER [--device cuda] [--videos videos] [--recipes windows single] [--peers packed lerobot]
              [--turns 3] [--cores 2] [--sweep 0 1 2 4] [--seconds 10] [--warmup 3]

The data is similar to ALOHA: four 640x480 cameras, AV1 with LeRobot's default settings. A sample of the `windows`
recipe has eight frames of each camera, and a sample of the `single` recipe has one. A loader delivers shuffled f32
batches of whole frames, scaled to [0, 1], together with the actions, in host memory or on the GPU. Each measurement
runs in a separate process, and the loaders alternate. The first run tries each setting of a loader, and the best one
is measured in all `--turns` runs. `--videos` names the videos that the loaders read.

packed      warpfeed, one worker per core, after `warpfeed pack --frames`. With `--device cuda`, the GPU decodes
            all or some of the frames.
videos      warpfeed, one worker per core, on the videos that LeRobot reads. With `--device cuda`, the default number
            of workers is also measured, and workers or the GPU convert the frames to RGB.
lerobot     `LeRobotDataset` in a DataLoader, with torchcodec and with PyAV; `--sweep` lists the numbers of processes
decord      `LeRobotDataset` with decord as its decoder
lance       a Lance table with a JPEG of quality 95 per frame, read with `take`, decoded with torchvision, in a
            DataLoader
torchcodec  `VideoDecoder` on the GPU, one for each thread and file, without actions
dali        DALI's video readers on the GPU, without actions. A window may start at any frame of any file.
dav1d       one thread per core, each decoding the videos of one camera from the first frame to the last, with PyAV.
            This is the limit of the decoder: no frames are skipped, converted or put into batches.
"""

import argparse
import collections
import concurrent.futures
import fractions
import io
import itertools
import json
import multiprocessing
import pathlib
import queue
import random
import shutil
import sys
import threading

import numpy as np

import cpu
import gpu
import turns

CAMERAS = [f"observation.images.{name}" for name in ("high", "low", "left", "right")]
WIDTH, HEIGHT, FPS = 640, 480, 50
#: For each recipe: samples per batch, and frames of each camera per sample.
RECIPES = {"windows": (4, 8), "single": (16, 1)}
#: For each kind of videos: the encoder and its options. Every second frame is a key frame, or every
#: thirtieth in `h264_30`.
ENCODERS = {
    "h264": ("libx264", {"preset": "veryfast", "g": "2", "bf": "0"}),
    "h264_30": ("libx264", {"preset": "veryfast", "g": "30", "bf": "2"}),
    "hevc": ("libx265", {"preset": "veryfast", "x265-params": "keyint=2:bframes=0:open-gop=0:log-level=error"}),
    "vp9": ("libvpx-vp9", {"g": "2", "crf": "33", "b": "0", "deadline": "realtime", "cpu-used": "8"}),
}


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


def encode(folder, kinds):
    import av

    for kind in kinds:
        encoder, settings = ENCODERS[kind]
        to = folder / kind
        shutil.copytree(folder / "videos", to)
        info = to / "meta" / "info.json"
        info.write_text(info.read_text().replace('"av1"', json.dumps(kind.partition("_")[0])))
        for path in sorted(to.rglob("*.mp4")):
            new = path.with_suffix(".new.mp4")
            with av.open(str(path)) as source, av.open(str(new), "w") as target:
                stream = target.add_stream(encoder, rate=FPS, options=settings)
                stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
                for number, frame in enumerate(source.decode(video=0)):
                    frame.pts, frame.time_base, frame.pict_type = number, fractions.Fraction(1, FPS), 0
                    target.mux(stream.encode(frame))
                target.mux(stream.encode(None))
            new.rename(path)


def deltas(count):
    return {name: [-i / FPS for i in range(count - 1, -1, -1)] for name in CAMERAS} if count > 1 else None


def warpfeed(options, recipe, path):
    import warpfeed as wf

    size, count = RECIPES[recipe]
    where = {"output": "torch"} if options.device == "cpu" else {"device": "cuda", "decode_on": options.decode_on}
    fields = {name: wf.Image(name, frames=count) if count > 1 else wf.Image(name) for name in CAMERAS}
    loader = wf.Loader(
        wf.LeRobot(path, delta_timestamps=deltas(count)), fields={**fields, "action": wf.NdArray("f32", [14])},
        augment=wf.Augment.resize((HEIGHT, WIDTH)), dtype="f32", normalize=([0, 0, 0], [1, 1, 1]), batch_size=size,
        shuffle=True, seed=0, num_workers=options.workers or None, drop_last=True, **where,
    )  # fmt: skip
    while True:
        for batch in loader:
            yield len(batch["action"]) * count * len(CAMERAS)


def packed(options, recipe):
    return warpfeed(options, recipe, options.folder / "packed")


def videos(options, recipe):
    return warpfeed(options, recipe, options.folder / options.videos[0])


def torch_batches(options, recipe, data, **extra):
    import torch

    size, count = RECIPES[recipe]
    on_gpu = options.device == "cuda"
    if options.workers:
        extra |= {"persistent_workers": True, "prefetch_factor": 2}
    loader = torch.utils.data.DataLoader(
        data, batch_size=size, shuffle=True, num_workers=options.workers, drop_last=True, pin_memory=on_gpu,
        **extra,
    )  # fmt: skip
    for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
        if on_gpu:
            batch = {name: batch[name].cuda(non_blocking=True) for name in (*CAMERAS, "action")}
        yield len(batch["action"]) * count * len(CAMERAS)


def pyav_frames(path, timestamps, tolerance, *_):
    """Decodes as LeRobot does with torchvision's `VideoReader`, which torchvision 0.26 does not
    have."""
    import av
    import torch

    results = {}
    with av.open(str(path)) as video:
        stream = video.streams.video[0]
        video.seek(int((min(timestamps) + tolerance) / stream.time_base), stream=stream)
        for frame in video.decode(stream):
            if frame.time > min(timestamps) - tolerance:
                results[round(frame.time * FPS)] = frame.to_ndarray(format="rgb24")
            if frame.time > max(timestamps) - tolerance:
                break
    frames = np.stack([results[round(time * FPS)] for time in timestamps])
    return torch.from_numpy(frames).permute(0, 3, 1, 2).float() / 255


def lerobot(options, recipe):
    from lerobot.datasets import lerobot_dataset
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from torchvision import io as images

    if options.decoder == "pyav" and not hasattr(images, "VideoReader"):
        lerobot_dataset.decode_video_frames = pyav_frames
    data = LeRobotDataset(
        "drawn/aloha", root=options.folder / options.videos[0], delta_timestamps=deltas(RECIPES[recipe][1]),
        video_backend=options.decoder,
    )  # fmt: skip
    return torch_batches(options, recipe, data)


def camera_files(options):
    return [sorted((options.folder / options.videos[0] / "videos" / name).rglob("*.mp4")) for name in CAMERAS]


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
    """Replaces the dots in a name, because Lance does not accept them."""
    return name.replace(".", "_")


class Lance:
    """Reads all rows of a batch with one call."""

    def __init__(self, path, count, episodes):
        self.path, self.count, self.table = path, count, None
        #: The first row of each sample's episode.
        self.first = [first for first, end in episodes for _ in range(first, end)]

    def __len__(self):
        return len(self.first)

    def __getitems__(self, samples):
        import lance
        import torch
        from torchvision.io import decode_jpeg

        self.table = self.table or lance.dataset(self.path)
        rows = [[max(i - k, self.first[i]) for k in range(self.count - 1, -1, -1)] for i in samples]
        expected = sorted({row for window in rows for row in window})
        index = {row: n for n, row in enumerate(expected)}
        read = self.table.take(expected)
        actions = torch.from_numpy(np.stack(read["action"].to_numpy()))
        results = [{"action": actions[index[i]]} for i in samples]
        for name in CAMERAS:
            jpegs = [torch.frombuffer(bytearray(jpeg.as_py()), dtype=torch.uint8) for jpeg in read[column(name)]]
            frames = decode_jpeg(jpegs)
            for sample, window in zip(results, rows, strict=True):
                sample[name] = torch.stack([frames[index[row]] for row in window]).float().div_(255)
        return results


def lance(options, recipe):
    import av
    import lance
    import pyarrow
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    data, path = LeRobotDataset("drawn/aloha", root=options.folder / options.videos[0]), options.folder / "frames.lance"
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
    extra = {"multiprocessing_context": "spawn"} if options.workers else {}
    return torch_batches(options, recipe, Lance(str(path), RECIPES[recipe][1], episodes), **extra)


def torchcodec(options, recipe):
    import torch
    from torchcodec.decoders import VideoDecoder

    size, count = RECIPES[recipe]
    on_gpu = options.device == "cuda"
    files = [files[0] for files in camera_files(options)]
    lengths = [VideoDecoder(str(file)).metadata.num_frames for file in files]
    rng, local = random.Random(0), threading.local()

    def decode(camera, frames, folder):
        if not hasattr(local, "decoders"):
            local.decoders, local.stream = {}, torch.cuda.Stream() if on_gpu else None
        if camera not in local.decoders:
            local.decoders[camera] = VideoDecoder(str(files[camera]), device=options.device, num_ffmpeg_threads=1)
        with torch.cuda.stream(local.stream):
            torch.div(local.decoders[camera].get_frames_at(frames).data, 255, out=folder)
            if on_gpu:
                local.stream.synchronize()

    def submit():
        """The memory of a batch of random samples, and the tasks that decode into it."""
        batch = torch.empty(len(files), size, count, 3, HEIGHT, WIDTH, device=options.device)
        ends = [rng.randrange(min(lengths)) for _ in range(size)]
        windows = [[max(end - k, 0) for k in range(count - 1, -1, -1)] for end in ends]
        cells = itertools.product(range(size), range(len(files)))
        return batch, [pool.submit(decode, camera, windows[n], batch[camera, n]) for n, camera in cells]

    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        queued = collections.deque(submit() for _ in range(3))
        while True:
            _, tasks = queued.popleft()
            for task in tasks:
                task.result()
            yield size * count * len(files)
            queued.append(submit())


def dali(options, recipe):
    from nvidia.dali import fn, pipeline_def, types

    size, count = RECIPES[recipe]
    device = "gpu" if options.device == "cuda" else "cpu"
    files = [str(file) for files in camera_files(options) for file in files]
    extra = {} if device == "gpu" else {"device_id": None}

    # Each reader decodes its part of each batch in its own thread.
    @pipeline_def(
        batch_size=max(1, size * len(CAMERAS) // options.workers), num_threads=options.cores,
        **{"device_id": 0, "prefetch_queue_depth": 2, **extra},
    )  # fmt: skip
    def pipeline():
        results = []
        for number in range(options.workers):
            frames = fn.readers.video(
                device=device, filenames=files, sequence_length=count, step=1, random_shuffle=True, initial_fill=16,
                shard_id=number, num_shards=options.workers, seed=number,
            )  # fmt: skip
            results.append(fn.crop_mirror_normalize(frames, dtype=types.FLOAT, output_layout="FCHW", std=[255.0] * 3))
        return tuple(results)

    built = pipeline()
    built.build()
    while True:
        yield sum(len(frames) for frames in built.run()) * count


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


def count_frames(options, peer, recipe, sizes):
    """Measures a loader, and puts the frame counts on a queue."""
    frames = 0
    for size in PEERS[peer][0](options, recipe):
        frames += size
        if frames >= 32:
            sizes.put(frames)
            frames = 0


def in_processes(options, peer, recipe):
    """The frame counts of several processes, each with its own batches."""
    context = multiprocessing.get_context("spawn")
    sizes = context.SimpleQueue()
    for _ in range(options.processes):
        context.Process(target=count_frames, args=(options, peer, recipe, sizes), daemon=True).start()
    while True:
        yield sizes.get()


# For each loader: its function, and the packages with printed versions.
PEERS = {
    "packed": (packed, ["warpfeed"]),
    "videos": (videos, ["warpfeed"]),
    "lerobot": (lerobot, ["lerobot", "torchcodec", "torch"]),
    "decord": (decord, ["decord", "lerobot"]),
    "lance": (lance, ["pylance", "torchvision"]),
    "torchcodec": (torchcodec, ["torchcodec", "torch"]),
    "dali": (dali, ["nvidia-dali-cuda130"]),
    "dav1d": (dav1d, ["av"]),
}


ON_CPU = ["packed", "videos", "lerobot", "decord", "lance", "dav1d"]


def settings(options, peer, _):
    if peer in ("packed", "videos", "dav1d"):
        on = {"packed": ["gpu", "auto"], "videos": ["gpu", "cpu"]}.get(peer) if options.device == "cuda" else None
        settings = [(f"--workers={options.cores}", f"--decode-on={decode_on}") for decode_on in on or ["cpu"]]
        if peer == "videos" and options.device == "cuda":
            # The default number of workers.
            settings.insert(0, ("--decode-on=gpu",))
        return settings
    if peer == "torchcodec":
        # Threads per process, and processes.
        return [(f"--workers={t}", f"--processes={p}") for t, p in ((8, 1), (16, 1), (4, 4))]
    if peer == "dali":
        return [(f"--workers={number}",) for number in (4, 8)]
    workers = [f"--workers={number}" for number in options.sweep]
    decoders = [("--decoder=torchcodec",), ("--decoder=pyav",)] if peer == "lerobot" else [()]
    return [(*decoder, number) for decoder in decoders for number in workers]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["draw", "encode", "measure"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--frames", type=int, default=100, help="frames per episode")
    parser.add_argument("--videos", nargs="+", choices=["videos", *ENCODERS], default=["videos"])
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where the batches are")
    turns.add_arguments(parser, PEERS, ON_CPU, seconds=10, warmup=3)
    parser.add_argument("--decoder", default="torchcodec", help=argparse.SUPPRESS)
    parser.add_argument("--decode-on", default="cpu", help=argparse.SUPPRESS)
    parser.add_argument("--processes", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step == "draw":
        return draw(options.folder, options.episodes, options.frames)
    if options.step == "encode":
        return encode(options.folder, options.videos)
    if options.one:
        peer, recipe = options.one
        several = options.processes > 1
        batches = in_processes(options, peer, recipe) if several else PEERS[peer][0](options, recipe)
        return turns.finish((gpu if options.device == "cuda" else cpu).measure(batches, options))
    values = [f"--{name}={getattr(options, name)}" for name in ("device", "seconds", "warmup", "cores")]
    arguments = ["measure", options.folder, "--videos", options.videos[0], *values]
    return turns.main(__file__, options, arguments, options.recipes, PEERS, settings, lambda _: "frames/s")


if __name__ == "__main__":
    sys.exit(main())
