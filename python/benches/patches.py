"""Compares :class:`warpfeed.Patches` with the image processors of ``transformers``: the grids and
values of the patches, and images per second.

    python python/benches/patches.py FOLDER [--images 500] [--workers 2] [--seconds 20]

`FOLDER` contains class folders of JPEGs. The processors need ``transformers`` 5 and
``torchvision``. Each model has two: one resizes with Pillow, the other with torchvision. Both
decode with Pillow, in the worker processes of a ``DataLoader`` that has as many workers as
warpfeed.

The first lines show how far the values are from those of each processor, in units of 1/255, for
pixel budgets that shrink and enlarge the images. The other lines show images/s, as the median of
three alternating runs.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import warpfeed
from PIL import Image, ImageOps
from transformers import Qwen2VLImageProcessor, Siglip2ImageProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

PROCESSORS = {
    "qwen2_vl": {"Pillow": Qwen2VLImageProcessorPil, "torchvision": Qwen2VLImageProcessor},
    "naflex": {"Pillow": Siglip2ImageProcessorPil, "torchvision": Siglip2ImageProcessor},
}
# Options of warpfeed and of the processor, for each budget.
BUDGETS: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "qwen2_vl": [
        ({"min_pixels": low, "max_pixels": high}, {"size": {"shortest_edge": low, "longest_edge": high}})
        for low, high in [(56 * 56, 28 * 28 * 1280), (56 * 56, 128 * 28 * 28), (1024 * 28 * 28, 1280 * 28 * 28)]
    ],
    "naflex": [({"max_patches": largest}, {"max_num_patches": largest}) for largest in (256, 64, 1024)],
}  # fmt: skip
BATCH = 8


class Processed(torch.utils.data.Dataset[Any]):
    """The batches of a processor, without padding patches."""

    def __init__(self, layout: str, processor: Any, files: list[Path]) -> None:
        self.layout, self.processor, self.files = layout, processor, files

    def __len__(self) -> int:
        return -(-len(self.files) // BATCH)

    def __getitem__(self, batch: int) -> tuple[Any, Any]:
        files = self.files[batch * BATCH : (batch + 1) * BATCH]
        # `load_image` of transformers applies the EXIF orientation.
        images = [ImageOps.exif_transpose(Image.open(file)).convert("RGB") for file in files]
        created = self.processor(images=images, return_tensors="pt")
        if self.layout == "qwen2_vl":
            return created["pixel_values"], created["image_grid_thw"]
        return created["pixel_values"][created["pixel_attention_mask"].bool()], created["spatial_shapes"]


def loader(layout: str, folder: Path, workers: int, **options: Any) -> warpfeed.Loader:
    fields = {"p": warpfeed.Patches(layout, **options)}
    return warpfeed.Loader(folder, batch_size=BATCH, num_workers=workers, fields=fields, drop_field=["image", "label"])


def compare(layout: str, processor: Any, files: list[Path], batches: warpfeed.Loader) -> str:
    """Checks that the grids are equal. Returns a summary of the value differences in units of
    1/255."""
    # Each channel has its own standard deviation, so 1/255 is a different normalized step in each.
    values = np.arange(1176 if layout == "qwen2_vl" else 768)
    channel = values // (2 * 14 * 14) if layout == "qwen2_vl" else values % 3
    levels = 255 * torch.tensor(processor.image_std)[torch.from_numpy(channel)]
    worst, total, count, images = 0.0, 0.0, 0, 0
    result = np.zeros(256, np.int64)
    processed = Processed(layout, processor, files)
    for (theirs, grids), ours in zip(map(processed.__getitem__, range(len(processed))), batches, strict=False):
        ours_grids = ours["p.grid_thw"][: len(grids), -grids.shape[1] :]
        assert ours_grids.tolist() == grids.tolist(), f"{layout}: the grids differ: {ours_grids} {grids}"
        difference = ((ours["p"][: len(theirs)] - theirs) * levels).abs()
        worst, count = max(worst, float(difference.max())), count + theirs.numel()
        total += float(difference.sum(dtype=torch.float64))
        result += np.bincount(difference.round().to(torch.int64).flatten().numpy(), minlength=256)
        images += len(grids)
    shares = {int(level): f"{result[level] / count:.4%}" for level in np.flatnonzero(result)[:4]}
    return f"{images} equal grids | max {worst:.3f} | mean {total / count:.4f} | by level {shares}"


def rate(batches: Any, seconds: float) -> float:
    """Measures the images/s for at least `seconds`, after one epoch that is not measured."""
    for _ in batches:
        pass
    begun, images = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        for batch in batches:
            images += len(batch["p.grid_thw"] if isinstance(batch, dict) else batch[1])
    return images / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    files = sorted(file for file in args.folder.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg"))[: args.images]
    for layout, processors in PROCESSORS.items():
        for (backend, kind), (ours, theirs) in itertools.product(processors.items(), BUDGETS[layout]):
            batches = loader(layout, args.folder, args.workers, **ours)
            print(layout, ours, backend, "|", compare(layout, kind(**theirs), files, batches), flush=True)
    for layout, processors in PROCESSORS.items():
        rates: dict[str, list[float]] = {}
        loaders: dict[str, Any] = {"warpfeed": loader(layout, args.folder, args.workers)}
        for backend, kind in processors.items():
            data = Processed(layout, kind(), files)
            loaders[backend] = torch.utils.data.DataLoader(data, batch_size=None, num_workers=args.workers)
        for _, (name, batches) in itertools.product(range(3), loaders.items()):
            rates.setdefault(name, []).append(rate(batches, args.seconds / 3))
        medians = {name: statistics.median(values) for name, values in rates.items()}
        for name, median in medians.items():
            ratio = medians["warpfeed"] / median
            print(f"{layout} {name}: {median:.1f} images/s, warpfeed is {ratio:.2f} times as fast", flush=True)


if __name__ == "__main__":
    main()
