"""Measures detection recipes in torch: torchvision's v2 transforms on tv_tensors, in a DataLoader.
`../annotated.rs` measures the same recipes in warpfeed.

    WARPFEED_LISTED=FOLDER cargo bench --bench annotated     # writes the images and boxes.json to FOLDER
    python detection.py FOLDER [--workers 2] [--seconds 10] [--recipe letterbox]

The recipes are `letterbox` (640x640, with flip) and `crop` (random-resized crop to 224, with flip).
Boxes are clipped and sanitized. Batches contain 16 or 64 u8 images in host memory.
"""

import argparse
import json
import pathlib
import time

import torch
import torchvision
from torchvision import io, tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F


class Letterbox(v2.Transform):
    """A centered letterbox. torchvision has only separate resize and pad transforms."""

    def __init__(self, side, fill):
        super().__init__()
        self.resize, self.side, self.fill = v2.Resize(size=None, max_size=side), side, fill

    def forward(self, image, target):
        image, target = self.resize(image, target)
        height, width = image.shape[-2:]
        left, top = (self.side - width) // 2, (self.side - height) // 2
        padding = [left, top, self.side - width - left, self.side - height - top]
        target["boxes"] = F.pad(target["boxes"], padding)
        return F.pad(image, padding, fill=self.fill), target


class Photographs(torch.utils.data.Dataset):
    def __init__(self, folder, transform):
        self.folder, self.transform = folder, transform
        self.items = json.loads((folder / "boxes.json").read_text())

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = self.items[index]
        image = io.decode_image(io.read_file(str(self.folder / item["file"])), mode="RGB")
        boxes = tv_tensors.BoundingBoxes(torch.tensor(item["boxes"]), format="XYXY", canvas_size=image.shape[-2:])
        target = {"boxes": boxes, "labels": torch.tensor(item["labels"])}
        return self.transform(tv_tensors.Image(image), target)


def collate(samples):
    images, targets = zip(*samples)
    return torch.stack(images), targets


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--warmup", type=float, default=3)
    parser.add_argument("--recipe", choices=["letterbox", "crop"], default="letterbox")
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, batch = (Letterbox(640, 114), 16) if options.recipe == "letterbox" else (v2.RandomResizedCrop(224), 64)
    transform = v2.Compose([first, v2.RandomHorizontalFlip(), v2.SanitizeBoundingBoxes()])
    loader = torch.utils.data.DataLoader(
        Photographs(options.folder, transform),
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=True,
        collate_fn=collate,
    )
    seen, started = 0, None
    begin = time.perf_counter()
    while True:
        for images, _ in loader:
            now = time.perf_counter()
            if started is None:
                if now - begin > options.warmup:
                    started = now
                continue
            seen += len(images)
            if now - started > options.seconds:
                rate = seen / (now - started)
                print(f"RESULT {options.recipe} torchvision {torchvision.__version__}: {rate:.0f} images/s")
                return


if __name__ == "__main__":
    main()
