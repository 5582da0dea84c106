#!/usr/bin/env python3
"""Measures other loaders that deliver normalized f16 batches on a GPU: random-resized crop 224 and flip.

    gpu.py CLASS_FOLDERS PEER... [--workers 16] [--seconds 5] [--warmup 1] [--batch 256]

Only the batches of `pillow` are f32. CLASS_FOLDERS contains one folder per class. An epoch repeats the photographs
until it has at least 50,000 samples, so that no queue runs empty during a measurement. The script prints one line per
peer: the images per second after a warm-up. The exit code is 1 if a peer failed.
"""

import argparse
import gc
import importlib.metadata
import pathlib
import sys
import time

SIDE = 224
EPOCH = 50_000
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def measure(batches, options):
    """Measures the images per second of an endless iterator over batch sizes. The warm-up begins
    with the first batch."""
    import torch

    next(batches)
    run(batches, options.warmup)
    torch.cuda.synchronize()
    start = time.perf_counter()
    images = run(batches, options.seconds)
    torch.cuda.synchronize()
    return images / (time.perf_counter() - start)


def run(batches, seconds):
    """Takes batches for `seconds`, and returns the number of images."""
    start, images = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        images += next(batches)
    return images


def repeats(samples):
    """Returns how often an epoch contains each sample of a dataset of `samples` samples."""
    return -(-EPOCH // samples)


def torch_batches(options, dataset, normalize):
    import torch

    # In half precision, because the batch would be f32 otherwise.
    mean = (torch.tensor(MEAN, device="cuda").view(1, 3, 1, 1) * 255).half()
    std = (torch.tensor(STD, device="cuda").view(1, 3, 1, 1) * 255).half()
    loader = torch.utils.data.DataLoader(
        torch.utils.data.ConcatDataset([dataset] * repeats(len(dataset))),
        options.batch,
        shuffle=True,
        num_workers=options.workers,
        pin_memory=True,
        prefetch_factor=4,
        persistent_workers=True,
        drop_last=True,
    )
    while True:
        for images, labels in loader:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            if normalize:
                images = (images.half() - mean) / std
            yield len(labels)


def torchvision(options):
    """torch DataLoader; torchvision's decoder and v2 transforms; normalized on the GPU."""
    import torchvision
    from torchvision.transforms import v2

    transform = v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()])

    def load(path):
        return torchvision.io.decode_image(torchvision.io.read_file(path), mode="RGB")

    return torch_batches(options, torchvision.datasets.ImageFolder(options.folders, transform, loader=load), True)


def pillow(options):
    """torch DataLoader; Pillow; normalized to f32 by the workers."""
    import torchvision
    from torchvision import transforms as t

    transform = t.Compose(
        [t.RandomResizedCrop(SIDE), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)]
    )
    return torch_batches(options, torchvision.datasets.ImageFolder(options.folders, transform), False)


def dali_batches(options, mixed):
    import torchvision
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    samples = torchvision.datasets.ImageFolder(options.folders).samples
    files, classes = map(list, zip(*samples * repeats(len(samples))))

    @pipeline_def(batch_size=options.batch, num_threads=options.workers, device_id=0, prefetch_queue_depth=4)
    def pipeline():
        jpegs, labels = fn.readers.file(files=files, labels=classes, random_shuffle=True, name="files")
        if mixed:
            images = fn.decoders.image_random_crop(
                jpegs,
                device="mixed",
                hw_decoder_load=options.share,
                preallocate_width_hint=600,
                preallocate_height_hint=600,
            )
            images = fn.resize(images, resize_x=SIDE, resize_y=SIDE)
        else:
            images = fn.decoders.image_random_crop(jpegs, device="cpu")
            images = fn.resize(images, resize_x=SIDE, resize_y=SIDE).gpu()
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT16,
            output_layout="CHW",
            mean=[v * 255 for v in MEAN],
            std=[v * 255 for v in STD],
            mirror=fn.random.coin_flip(),
        )
        return images, labels.gpu()

    built = pipeline()
    built.build()
    loader = DALIGenericIterator([built], ["images", "labels"], reader_name="files", auto_reset=True)
    while True:
        for batch in loader:
            yield len(batch[0]["images"])


def dali_cpu(options):
    """DALI; decodes on the CPU, normalizes on the GPU."""
    return dali_batches(options, False)


def dali_mixed(options):
    """DALI; decodes on the GPU, with the shares in `--hardware` of the images on the GPU's JPEG engine."""
    return dali_batches(options, True)


# For each peer: its function, and the packages with printed versions.
PEERS = {
    "torchvision": (torchvision, ["torch", "torchvision"]),
    "pillow": (pillow, ["torch", "torchvision", "pillow"]),
    "dali_cpu": (dali_cpu, ["nvidia-dali-cuda130"]),
    "dali_mixed": (dali_mixed, ["nvidia-dali-cuda130"]),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="peers:\n" + "\n".join(f"  {name:12} {peer.__doc__}" for name, (peer, _) in PEERS.items()),
    )
    parser.add_argument("folders", type=pathlib.Path)
    parser.add_argument("peers", nargs="+", choices=PEERS, metavar="peer")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warmup", type=float, default=1, help="seconds, from the first batch")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument(
        "--hardware", type=float, nargs="+", default=[0.65], metavar="SHARE",
        help="dali_mixed: fraction of the images for the GPU's JPEG engine; several fractions are measured in turn",
    )  # fmt: skip
    options = parser.parse_args()
    failed = False
    for name, share in [(n, s) for n in options.peers for s in (options.hardware if n == "dali_mixed" else [None])]:
        peer, packages = PEERS[name]
        options.share, shown = share, name if share is None else f"{name}:{share}"
        try:
            versions = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in packages)
            rate = measure(peer(options), options)
            print(f"RESULT {shown} ({versions}), {options.workers} workers: {rate:.0f} images/s", flush=True)
        except Exception as e:  # a missing or failing peer must not stop the others
            print(f"FAILED {shown}: {type(e).__name__}: {str(e)[:300]}", flush=True)
            failed = True
        gc.collect()  # frees the loader before the next one is opened
    sys.exit(failed)


if __name__ == "__main__":
    main()
