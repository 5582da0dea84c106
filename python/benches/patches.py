"""Compares :class:`warpfeed.Patches` with the image processors of ``transformers``: the sizes and
values of the patches, and images per second.

    python python/benches/patches.py FOLDER [--images 200] [--threads 2]

`FOLDER` contains JPEGs. The processors decode with Pillow.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import warpfeed
from PIL import Image
from transformers import Qwen2VLImageProcessor, Siglip2ImageProcessor


class Files:
    def __init__(self, files: list[Path]) -> None:
        self.bytes = [file.read_bytes() for file in files]
        self.files = files

    def __len__(self) -> int:
        return len(self.bytes)

    def __getitem__(self, id: int) -> dict[str, Any]:
        return {"jpg": self.bytes[id]}


def processed(layout: str, processor: Any, files: list[Path]) -> tuple[Any, Any]:
    """Returns the packed patches and the grids of the processor."""
    made = processor(images=[Image.open(file).convert("RGB") for file in files], return_tensors="pt")
    if layout == "qwen2_vl":
        return made["pixel_values"], made["image_grid_thw"]
    return made["pixel_values"][made["pixel_attention_mask"].bool()], made["spatial_shapes"]


def loaded(layout: str, data: Files, batch: int) -> Any:
    fields = {"p": warpfeed.Patches(layout)}
    return warpfeed.Loader(data, batch_size=batch, fields=fields, drop_field=["image", "label"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    files = sorted(args.folder.rglob("*.jp*g"))[: args.images]
    data = Files(files)
    for layout, processor in [("qwen2_vl", Qwen2VLImageProcessor()), ("naflex", Siglip2ImageProcessor())]:
        level = 1 / 255 / min(processor.image_std)
        found: dict[int, int] = {}
        for start, batch in zip(range(0, len(files), 8), loaded(layout, data, 8), strict=True):
            values, grids = processed(layout, processor, files[start : start + 8])
            assert batch["p.grid_thw"][:, -grids.shape[1] :].tolist() == grids.tolist(), "the grids differ"
            levels = ((batch["p"] - values).abs() / level).round().to(torch.int64)
            for difference, count in zip(*np.unique(levels.numpy(), return_counts=True), strict=True):
                found[int(difference)] = found.get(int(difference), 0) + int(count)
        print(layout, "values by difference in levels of 255:", found)
        for turn in range(2):
            for size in (1, 8, 32):
                begun = time.perf_counter()
                for start in range(0, len(files), size):
                    processed(layout, processor, files[start : start + size])
                print(f"  transformers, {size} images a call: {len(files) / (time.perf_counter() - begun):.1f} images/s")
            loader = loaded(layout, data, 8)
            begun = time.perf_counter()
            for _ in loader:
                pass
            print(f"  warpfeed, turn {turn}: {len(files) / (time.perf_counter() - begun):.1f} images/s")


if __name__ == "__main__":
    main()
