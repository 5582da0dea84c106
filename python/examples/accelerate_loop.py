"""Trains with accelerate, and continues where the previous run stopped:
python/examples/accelerate_loop.py FOLDER STATE

Each run trains for five steps and saves its state in the folder STATE.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import torch
import warpfeed
from accelerate import Accelerator

STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("state")
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    loader = warpfeed.Loader(
        args.folder, batch_size=16, shuffle=True, seed=42, augment=warpfeed.Augment.train(32), normalize="imagenet",
        distributed=accelerator.num_processes > 1, drop_last=True,
    )  # fmt: skip
    layers = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, len(loader.classes))]
    model = torch.nn.Sequential(*layers)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), loader)
    steps_file = Path(args.state, "steps.txt")
    done = 0
    if steps_file.exists():
        accelerator.load_state(args.state)
        done = int(steps_file.read_text())
    first_epoch, first_batch = divmod(done, len(loader))
    remaining = STEPS
    for epoch in itertools.count(first_epoch):
        # Each epoch has a different order.
        loader.set_epoch(epoch)
        for images, labels in loader.skip_first_batches(first_batch if epoch == first_epoch else 0):
            accelerator.backward(torch.nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
            optimizer.zero_grad()
            done, remaining = done + 1, remaining - 1
            if remaining == 0:
                accelerator.save_state(args.state)
                steps_file.write_text(str(done))
                print(f"{done} steps")
                return


if __name__ == "__main__":
    main()
