#!/usr/bin/env python3
"""Measures other loaders on the CPU: random-resized crop 224 and flip, with batches in host memory.

    cpu.py PHOTOGRAPHS WORK PEER... [--workers 2] [--seconds 5] [--warmup 1] [--batch 64] [--copies 6]

PHOTOGRAPHS is searched for *.JPEG and *.jpg at any depth. The script creates the peers' data in
WORK: ten class folders with `copies` links to each photograph, a .beton, and a .tar. An epoch of torch and FFCV repeats
the photographs until it has at least 50,000 samples, so that no queue runs empty during a measurement. DALI's queue
does not run empty at the end of an epoch. The script prints one line per peer: the images per second after a warm-up.
The exit code is 1 if a peer failed.
"""

import argparse
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import time

SIDE = 224
EPOCH = 50_000
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def class_folders(options):
    """Returns a folder with ten class folders of the photographs. Links or copies the photographs
    unless the folder exists."""
    folder = options.work / f"images-{options.copies}"
    if folder.is_dir():
        return folder
    result = sorted(p for p in options.photographs.rglob("*") if p.suffix.lower() in (".jpeg", ".jpg"))
    if not result:
        sys.exit(f"{options.photographs}: contains no photographs")
    for i, photograph in enumerate(result):
        target = folder / f"class{i % 10}"
        target.mkdir(parents=True, exist_ok=True)
        for copy in range(options.copies):
            link = target / f"{i:05d}_{copy}.JPEG"
            try:
                os.link(photograph, link)
            except OSError:  # WORK is on a different file system
                link.write_bytes(photograph.read_bytes())
    return folder


def measure(batches, options):
    """Measures the images per second of an endless iterator over batch sizes. The warm-up begins
    with the first batch."""
    next(batches)
    start = time.perf_counter()
    while time.perf_counter() - start < options.warmup:
        next(batches)
    start, images = time.perf_counter(), 0
    while time.perf_counter() - start < options.seconds:
        images += next(batches)
    return images / (time.perf_counter() - start)


def repeats(samples):
    """Returns how often an epoch contains each sample of a dataset of `samples` samples."""
    return -(-EPOCH // samples)


def torch_batches(options, dataset):
    import torch

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.ConcatDataset([dataset] * repeats(len(dataset))),
        options.batch,
        shuffle=True,
        num_workers=options.workers,
        prefetch_factor=4,
        persistent_workers=True,
        drop_last=True,
    )
    while True:
        for _, labels in loader:
            yield len(labels)


def torchvision_u8(options):
    """torch DataLoader; torchvision's decoder and v2 transforms; u8."""
    import torchvision
    from torchvision.transforms import v2

    transform = v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()])

    def load(path):
        return torchvision.io.decode_image(torchvision.io.read_file(path), mode="RGB")

    return torch_batches(options, torchvision.datasets.ImageFolder(class_folders(options), transform, loader=load))


def pillow(options, last):
    import torchvision
    from torchvision import transforms as t

    transform = t.Compose([t.RandomResizedCrop(SIDE), t.RandomHorizontalFlip(), *last])
    return torch_batches(options, torchvision.datasets.ImageFolder(class_folders(options), transform))


def pillow_u8(options):
    """torch DataLoader; Pillow; u8."""
    from torchvision import transforms as t

    return pillow(options, [t.PILToTensor()])


def pillow_f32(options):
    """torch DataLoader; Pillow; normalized f32."""
    from torchvision import transforms as t

    return pillow(options, [t.ToTensor(), t.Normalize(MEAN, STD)])


def ffcv_batches(options, name, field):
    import numpy
    import torchvision
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor
    from ffcv.writer import DatasetWriter

    beton = options.work / f"{name}-{options.copies}.beton"
    folder = torchvision.datasets.ImageFolder(class_folders(options))
    if not beton.exists():
        fields = {"image": RGBImageField(**field), "label": IntField()}
        DatasetWriter(str(beton), fields, num_workers=1).from_indexed_dataset(folder)
    crop = RandomResizedCropRGBImageDecoder((SIDE, SIDE))
    loader = Loader(
        str(beton),
        batch_size=options.batch,
        num_workers=options.workers,
        order=OrderOption.RANDOM,
        indices=numpy.tile(numpy.arange(len(folder), dtype="uint64"), repeats(len(folder))),
        os_cache=True,
        drop_last=True,
        batches_ahead=3,
        pipelines={"image": [crop, RandomHorizontalFlip(), ToTensor()], "label": [IntDecoder(), ToTensor()]},
    )
    while True:
        for _, labels in loader:
            yield len(labels)


def ffcv(options):
    """FFCV; a .beton of JPEGs that FFCV encoded at quality 90; u8."""
    return ffcv_batches(options, "q90", {"write_mode": "jpg", "max_resolution": None, "jpeg_quality": 90})


def ffcv_raw(options):
    """FFCV; a .beton of decoded images of at most 256 pixels a side; u8."""
    return ffcv_batches(options, "raw256", {"write_mode": "raw", "max_resolution": 256})


def dali(options):
    """DALI on the CPU alone; u8."""
    from nvidia.dali import fn, pipeline_def

    @pipeline_def(batch_size=options.batch, num_threads=options.workers, device_id=None, prefetch_queue_depth=4)
    def pipeline():
        jpegs, labels = fn.readers.file(file_root=str(class_folders(options)), random_shuffle=True)
        images = fn.decoders.image_random_crop(jpegs, device="cpu")
        images = fn.resize(images, resize_x=SIDE, resize_y=SIDE)
        return fn.flip(images, horizontal=fn.random.coin_flip()), labels

    built = pipeline()
    built.build()
    while True:
        yield len(built.run()[1])


def tar_of_files(options):
    tar = options.work / f"images-{options.copies}.tar"
    if not tar.exists():
        # Without --hard-dereference, hard links become empty entries.
        folder = class_folders(options)
        subprocess.run(["tar", "--hard-dereference", "-cf", tar, "-C", folder, "."], check=True)
    return str(tar)


def turboloader(options):
    """TurboLoader; a tar of the files; normalized f32."""
    import turboloader

    loader = turboloader.DataLoader(
        tar_of_files(options),
        batch_size=options.batch,
        image_size=SIDE,
        output_format="pytorch",
        shuffle=True,
        train_aug=True,
        num_workers=options.workers,
        transform=turboloader.ImageNetNormalize(),
    )
    while True:
        for images, _ in loader:
            yield len(images)


def turboloader_raw(options):
    """TurboLoader; a .tbl of decoded images of 256 pixels a side; normalized f32."""
    import turboloader

    tbl = options.work / f"raw256-{options.copies}.tbl"
    if not tbl.exists():
        turboloader.preprocess_to_tbl(tar_of_files(options), str(tbl), 256, num_workers=options.workers)
    loader = turboloader.TblRawImageLoader(
        str(tbl), options.batch, shuffle=True, drop_last=True, train_aug=True, hflip_prob=0.5, image_size=SIDE
    )
    while True:
        for images, _ in loader:
            yield len(images)


# For each peer: its function, and the packages with printed versions.
PEERS = {
    "torchvision_u8": (torchvision_u8, ["torch", "torchvision"]),
    "pillow_u8": (pillow_u8, ["torch", "torchvision", "pillow"]),
    "pillow_f32": (pillow_f32, ["torch", "torchvision", "pillow"]),
    "ffcv": (ffcv, ["ffcv"]),
    "ffcv_raw": (ffcv_raw, ["ffcv"]),
    "dali": (dali, ["nvidia-dali-cuda130"]),
    "turboloader": (turboloader, ["turboloader"]),
    "turboloader_raw": (turboloader_raw, ["turboloader"]),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="peers:\n" + "\n".join(f"  {name:15} {peer.__doc__}" for name, (peer, _) in PEERS.items()),
    )
    parser.add_argument("photographs", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("peers", nargs="+", choices=PEERS, metavar="peer")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5, help="seconds of measurement")
    parser.add_argument("--warmup", type=float, default=1, help="seconds of warm-up, which begins with the first batch")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--copies", type=int, default=6, help="number of links to each photograph")
    options = parser.parse_args()
    failed = False
    for name in options.peers:
        peer, packages = PEERS[name]
        try:
            versions = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in packages)
            rate = measure(peer(options), options)
            print(f"RESULT {name} ({versions}), {options.workers} workers: {rate:.0f} images/s", flush=True)
        except Exception as e:  # a peer that is missing or fails must not stop the others
            print(f"FAILED {name}: {type(e).__name__}: {str(e)[:300]}", flush=True)
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
