"""Compares the throughput of a loop in Python with `warpfeed bench`, which loops in Rust, and
measures the duration of a call to `next`.

    python benches/rate.py train.lmdb [--seconds 8] [--rounds 5] [--batch 256]

Both loops read the same data as `u8` images, with the same augmentation: a random resized crop to
224 pixels, and a random flip.

- `rust` is `warpfeed bench`, which uses batches in host memory. `again` is a second run of it, and
  shows the noise between identical runs.
- `numpy`, `torch` and `cuda` are loops in Python, with NumPy arrays, torch tensors on the host, and
  torch tensors on the device.

The order of the runs changes from round to round. For each run, the program prints the median rate,
the median of its ratios to `rust` in the same round, the quartiles of the ratios, and all rates.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

import warpfeed


def output_options(output: str) -> dict[str, str]:
    return {"output": "torch", "device": "cuda"} if output == "cuda" else {"output": output}


def rust(args: argparse.Namespace) -> float:
    command = [sys.executable, "-m", "warpfeed", "bench", args.path, "--json", "--batch-size", str(args.batch)]
    process = subprocess.run(
        [*command, "--seconds", str(args.seconds), "--warmup", str(args.warmup)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(process.stdout)["samples_per_second"])


def python(args: argparse.Namespace, output: str) -> float:
    loader = warpfeed.Loader(
        args.path,
        batch_size=args.batch,
        shuffle=True,
        augment=warpfeed.Augment.train(224),
        unlabeled=True,
        **output_options(output),
    )
    begin, samples, since = time.monotonic(), 0, 0.0
    while True:
        for images, _ in loader:
            now = time.monotonic()
            if since:
                samples += len(images)
                if now - since >= args.seconds:
                    loader.close()
                    return samples / (now - since)
            elif now - begin >= args.warmup:
                since = now


def cost_of_next(path: str, output: str) -> float:
    """Returns the median duration of a call to `next` in microseconds, when a batch is ready."""
    loader = warpfeed.Loader(
        path, batch_size=1, prefetch=16, augment=warpfeed.Augment.resize(8, 8), unlabeled=True, **output_options(output)
    )
    times = []
    for _ in range(30):
        it = iter(loader)
        next(it)
        time.sleep(0.05)
        for _ in range(8):
            start = time.perf_counter()
            batch = next(it)
            times.append(time.perf_counter() - start)
            del batch
    loader.close()
    return statistics.median(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--warmup", type=float, default=2)
    args = parser.parse_args()
    outputs = ["numpy"]
    try:
        import torch

        outputs.extend(["torch", "cuda"] if torch.cuda.is_available() else ["torch"])
    except ImportError:
        pass
    runs = {"rust": rust, "again": rust}
    runs.update((output, lambda args, output=output: python(args, output)) for output in outputs)
    rates: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for round_index in range(args.rounds):
        for position in range(len(names)):
            name = names[(round_index + position) % len(names)]
            rates[name].append(runs[name](args))
    for name, measured in rates.items():
        ratios = sorted(b / a for a, b in zip(rates["rust"], measured, strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        listed = " ".join(f"{rate:.0f}" for rate in measured)
        medians = f"{statistics.median(measured):>8.0f} images/s, {statistics.median(ratios):.3f}"
        print(f"{name:<6} {medians} of rust ({low:.3f} to {high:.3f}): {listed}")
    for output in ["dlpack", *outputs]:
        print(f"next   {output:<6} {cost_of_next(args.path, output):.1f} us")


if __name__ == "__main__":
    main()
