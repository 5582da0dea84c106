"""Runs Ultralytics' trainer with warpfeed's batches: python/examples/yolo_trainer.py DATA.YAML
[OPTIONS]

`--help` lists the options.

The trainer overrides `get_dataloader`. warpfeed loads the training set. Ultralytics' own loader
loads the validation set, because the validation metrics need additional metadata. As in
Ultralytics, the last `close_mosaic` epochs train without mosaics.
"""

from __future__ import annotations

import argparse
from typing import Any, Iterator

import torch
import warpfeed
from ultralytics.models.yolo.detect import DetectionTrainer


def targets(batch: Any) -> dict[str, Any]:
    """Converts a batch for `DetectionTrainer.preprocess_batch` and the loss."""
    images, boxes = warpfeed.collate.yolo_targets(batch)
    annotations = {"batch_idx": boxes[:, 0], "cls": boxes[:, 1:2], "bboxes": boxes[:, 2:]}
    return {"img": images, "im_file": batch.sample_keys, **annotations}


class Dataset(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The attributes that the trainer reads from a dataset."""

    #: Ultralytics 8.4.190 compares the number of objects of each image in this list with `max_det`.
    #: The list is empty, so this check does nothing.
    labels: list[Any] = []

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples


class Loader(warpfeed.Loader):
    """A loader with the attributes that the trainer reads from a torch loader."""

    num_workers = 0

    @property
    def dataset(self) -> Dataset:  # type: ignore[override]
        return Dataset(len(super().dataset))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # Copy the dict, because the trainer replaces its entries.
        return (dict(batch) for batch in super(Loader, self).__iter__())

    def reset(self) -> None:
        """Does nothing, because each loop over the loader already begins a new epoch."""


class Sampler(torch.utils.data.Sampler):  # type: ignore[type-arg]
    """Forwards `set_epoch` to the loader. The length is the number of samples."""

    def __init__(self, loader: warpfeed.Loader) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader.dataset)

    def set_epoch(self, epoch: int) -> None:
        self.loader.set_epoch(epoch)


class Trainer(DetectionTrainer):  # type: ignore[misc]
    def get_dataloader(self, dataset_path: str, batch_size: int = 16, rank: int = 0, mode: str = "train") -> Any:
        if mode != "train":
            return super().get_dataloader(dataset_path, batch_size, rank, mode)
        args = self.args
        colors = warpfeed.ColorJitter(brightness=args.hsv_v, saturation=args.hsv_s, hue=args.hsv_h)
        scale = (1 - args.scale, 1 + args.scale)
        plain = warpfeed.Augment.scale_jitter(args.imgsz, *scale).fill(114, 114, 114)
        plain = plain.flip(args.fliplr).vertical_flip(args.flipud).jitter(colors)
        augment, mosaic_epochs = plain, self.epochs - args.close_mosaic
        # If `close_mosaic` exceeds the number of epochs, Ultralytics never turns mosaics off.
        if args.mosaic and mosaic_epochs:
            augment = plain.mosaic(args.mosaic, scale=scale, translate=args.translate)
            if 0 < mosaic_epochs < self.epochs:
                augment = augment.from_epoch(mosaic_epochs, plain)
        loader = Loader(
            warpfeed.Yolo(args.data, "train"),
            batch_size=batch_size,
            shuffle=True,
            seed=args.seed,
            augment=augment,
            fields={"boxes": warpfeed.Boxes(300, columns={"class": "i64"}, min_size=2, min_visible=0.1, truncate=True)},
            drop_field=["label"],
            num_workers=args.workers or None,
            distributed=rank != -1,
            collate=targets,
        )
        loader.sampler = Sampler(loader)  # type: ignore[assignment]
        return loader


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--model", default="yolo11n.yaml")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--imgsz", type=int, default=640)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--project", default="runs")
    args = vars(parser.parse_args())
    trainer = Trainer(overrides={**args, "seed": 1, "plots": False, "amp": False, "pretrained": False})
    trainer.train()
    print(f"after {trainer.epoch + 1} epochs, {sorted(trainer.label_loss_items(trainer.tloss))}")
