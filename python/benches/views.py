"""Measures the cost of a second view: source images per second with one and with two random-resized
crops per image, in alternating runs.

    python benches/views.py train.lmdb [--rounds 5] [--seconds 4] [--workers 2]

Batches are `u8` in host memory. The cost is the ratio of the two rates. It would be about 2 if each
image were decoded and cropped twice.
"""

from __future__ import annotations

import argparse
import statistics
import time

import warpfeed


def rate(path: str, views: int, args: argparse.Namespace) -> float:
    """Measures the source images per second, after one second of warm-up."""
    crop = warpfeed.Augment.train(224)
    crops = {"augment": crop} if views == 1 else {"views": [crop] * views}
    loader = warpfeed.Loader(
        path, batch_size=64, shuffle=True, seed=42, num_workers=args.workers, repeat=1000, unlabeled=True, output="numpy", **crops
    )
    begin, images, counted = time.monotonic(), 0, 0.0
    for batch in loader:
        now = time.monotonic()
        if counted:
            images += len(batch.ids)
            if now - counted >= args.seconds:
                break
        elif now - begin >= 1:
            counted = now
    took = time.monotonic() - counted
    loader.close()
    return images / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    rates: dict[int, list[float]] = {1: [], 2: []}
    for round_index in range(args.rounds):
        for views in (1, 2) if round_index % 2 == 0 else (2, 1):
            rates[views].append(rate(args.path, views, args))
    for views, measured in rates.items():
        listed = " ".join(f"{rate:.0f}" for rate in measured)
        print(f"{views} views: {statistics.median(measured):.0f} images/s ({listed})")
    costs = [one / two for one, two in zip(rates[1], rates[2], strict=True)]
    print(f"cost of the second view: {statistics.median(costs):.2f} ({min(costs):.2f} to {max(costs):.2f})")


if __name__ == "__main__":
    main()
