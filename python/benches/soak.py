"""Trains for a long time, and prints the memory usage of the process every minute.

    python benches/soak.py train.lmdb [--minutes 60] [--device cpu] [--workers 1]

A small network trains on the batches of a loader. The training loop saves and loads states, ends
epochs early, and holds batches for several steps. Each minute, it opens and closes a second loader
for the same data, and prints the number of batches and the resident memory. The last lines show how
much the memory grew after the fifth minute, and how much a leak of one batch per epoch would have
added. `--leak` causes such a leak, to check that it is visible.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import deque

import torch
import warpfeed


def resident() -> float:
    """Returns the resident memory in MiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--leak", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)

    def open_loader() -> warpfeed.Loader:
        return warpfeed.Loader(
            args.data, batch_size=args.batch, shuffle=True, seed=1, augment=warpfeed.Augment.train(args.side), device=args.device,
            normalize="imagenet", num_workers=args.workers, unlabeled=True,
        )  # fmt: skip

    loader = open_loader()
    squeeze = torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    layers = torch.nn.Conv2d(3, 8, 3, stride=4), *squeeze, torch.nn.Linear(8, 10)
    model = torch.nn.Sequential(*layers).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    retained: deque[object] = deque(maxlen=3)
    leaked: list[object] = []
    begin, minute, batches, resident_at = time.monotonic(), 0, 0, {}
    epochs, epochs_at = 0, {}
    while True:
        epochs += 1
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels % 10)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            retained.append(images)
            batches += 1
            if batches % 100 == 50:
                loader.load_state_dict(loader.state_dict())
                break
            if time.monotonic() - begin >= 60 * (minute + 1):
                minute += 1
                with open_loader() as second:
                    next(iter(second))
                resident_at[minute], epochs_at[minute] = resident(), epochs
                device_memory = ""
                if args.device != "cpu":
                    free, total = torch.cuda.mem_get_info()
                    device_memory = f", {(total - free) / 2**20:.0f} MiB of device memory"
                memory = f"{resident_at[minute]:.1f} MiB{device_memory}"
                print(f"minute {minute}: {batches} batches, {epochs} epochs begun, {memory}", flush=True)
                if minute >= args.minutes:
                    first = min(5, minute)
                    growth = resident_at[minute] - resident_at[first]
                    leak = (epochs_at[minute] - epochs_at[first]) * images.nbytes / 2**20
                    print(f"minute {first} to {minute}: {growth:+.1f} MiB")
                    print(f"a leak of one batch per epoch: {leak:+.1f} MiB")
                    return
        if args.leak:
            leaked.append(images)


if __name__ == "__main__":
    main()
