"""Trains with Lightning on the CPU: python/examples/lightning_module.py FOLDER

With --checkpoints FOLDER, Lightning saves FOLDER/last.ckpt after each epoch. With --resume PATH,
the run continues with the batch after the checkpoint PATH.
"""

from __future__ import annotations

import argparse

import lightning
import torch
import warpfeed
from lightning.pytorch.callbacks import ModelCheckpoint
from warpfeed.lightning import DataModule


class Network(lightning.LightningModule):
    def __init__(self, classes: int) -> None:
        super().__init__()
        layers = [torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
        self.model = torch.nn.Sequential(*layers, torch.nn.Linear(8, classes))
        self.correct = self.total = 0

    def training_step(self, batch, index):  # type: ignore[no-untyped-def]
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.model(images), labels)

    def on_validation_epoch_start(self) -> None:
        self.correct = self.total = 0

    def validation_step(self, batch, index):  # type: ignore[no-untyped-def]
        images, labels = batch
        # Exclude padding.
        self.correct += int((self.model(images).argmax(1) == labels)[batch.valid].sum())
        self.total += int(batch.valid.sum())

    def configure_optimizers(self):  # type: ignore[no-untyped-def]
        return torch.optim.SGD(self.parameters(), 0.1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--checkpoints")
    parser.add_argument("--resume")
    args = parser.parse_args()
    data = DataModule(
        train={"data": args.folder, "shuffle": True, "seed": 42, "augment": warpfeed.Augment.train(32), "drop_last": True},
        val={"data": args.folder, "augment": warpfeed.Augment.eval(40, 32), "last_batch": "pad"},
        batch_size=16, normalize="imagenet",
    )  # fmt: skip
    network = Network(classes=4)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    saving = [ModelCheckpoint(args.checkpoints, save_last=True)] if args.checkpoints else []
    cpu = {"accelerator": "cpu", "devices": 1}
    trainer = lightning.Trainer(
        max_epochs=args.epochs, callbacks=saving, enable_checkpointing=bool(saving), **cpu, **quiet
    )
    trainer.fit(network, data, ckpt_path=args.resume)
    print(f"{network.correct} of {network.total} correct after {trainer.global_step} steps")


if __name__ == "__main__":
    main()
