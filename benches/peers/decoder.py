"""Measures nvJPEG through torchvision's `decode_jpeg(device="cuda")`.

    python decoder.py FOLDER [--seconds N]

`cargo bench --bench decoder` measures warpfeed. Each request contains 1, 8, 64 or 256 JPEGs from
FOLDER. Only one request is in flight at a time. It is measured from the call until the device has finished.
"decode" is `decode_jpeg` on the list of files. "batch" adds the other operations of warpfeed's decoder: resize the
shorter side to 256 (antialiased), center-crop to 224, convert to normalized f16, and stack into one tensor (N, C, H,
W). Images that `decode_jpeg` rejects are skipped and counted.
"""

import argparse
import itertools
import pathlib
import time

import torch
import torchvision
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2 import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--seconds", type=float, default=2.0)
arguments = parser.parse_args()

MEAN = torch.tensor([0.485, 0.456, 0.406], device="cuda").view(1, 3, 1, 1) * 255
STD = torch.tensor([0.229, 0.224, 0.225], device="cuda").view(1, 3, 1, 1) * 255


def decode(images):
    return decode_jpeg(images, mode=ImageReadMode.RGB, device="cuda")


def batch(images):
    crops = [F.center_crop(F.resize(image, [256], antialias=True), [224, 224]) for image in decode(images)]
    return ((torch.stack(crops).float() - MEAN) / STD).half()


def is_decoded(original):
    try:
        decode([original])
        return True
    except RuntimeError:
        return False


files = sorted(path for path in arguments.folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
files_read = [torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8) for path in files]
images = [original for original in files_read if is_decoded(original)]
versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
print(f"{versions}: decoding {len(images)} of {len(files_read)} images")
print(f"{'':10} {'request':>7} {'median ms':>10} {'99% ms':>10} {'images/s':>12}")
for size in (1, 8, 64, 256):
    for name, make in (("decode", decode), ("batch", batch)):
        endless = itertools.cycle(images)
        for _ in range(5):
            make(list(itertools.islice(endless, size)))
        torch.cuda.synchronize()
        took = []
        while sum(took) < arguments.seconds:
            request = list(itertools.islice(endless, size))
            since = time.perf_counter()
            created = make(request)
            torch.cuda.synchronize()
            took.append(time.perf_counter() - since)
            del created
        took.sort()
        quantile = lambda share: took[int(len(took) * share)] * 1e3  # noqa: E731
        rate = len(took) * size / sum(took)
        print(f"{name:10} {size:7} {quantile(0.5):10.2f} {quantile(0.99):10.2f} {rate:12.0f}", flush=True)
