"""Measures the time to open a loader with device batches, and the time to its first batch.

    python benches/opening.py train.lmdb [--times 8]

The options are similar to those of `warpfeed gpu` in `train.py`. The first loader of the process
also loads the kernels, so its times are printed separately.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import warpfeed


def time_opening(path: str) -> tuple[float, float]:
    """Returns the milliseconds until a loader is open, and until its first batch is on the
    device."""
    begin = time.perf_counter()
    loader = warpfeed.Loader(
        path, batch_size=256, shuffle=True, seed=42, augment=warpfeed.Augment.train(224), device="cuda", dtype="bf16",
        normalize="imagenet", decode_on="gpu", unlabeled=True,
    )  # fmt: skip
    is_open = time.perf_counter()
    next(iter(loader))
    torch.cuda.synchronize()
    first = time.perf_counter()
    loader.close()
    # The memory of a closed loader is freed in the background.
    time.sleep(0.3)
    return 1e3 * (is_open - begin), 1e3 * (first - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--times", type=int, default=8)
    args = parser.parse_args()
    torch.zeros(1, device="cuda")
    measured = [time_opening(args.path) for _ in range(args.times)]
    for name, times in zip(("open", "first batch"), zip(*measured, strict=True), strict=True):
        listed = " ".join(f"{ms:.0f}" for ms in times)
        print(f"{name:<12} first {times[0]:.0f} ms, then median {statistics.median(times[1:]):.0f} ms ({listed})")


if __name__ == "__main__":
    main()
