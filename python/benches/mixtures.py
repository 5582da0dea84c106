"""Compares mixtures of many datasets with Grain's `MapDataset.mix`: the time to compute the order,
in samples per second, and the memory.

Run `python/benches/mixtures.py --sets 35` with an interpreter that has the `grain` package. Without
the package, only the loader is measured. Each measurement runs in a separate process. Grain's order
is read index by index. The loader's order is read as the ids of batches, so its figures include
delivering batches to Python; `cargo bench --bench order` measures the order alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory


def memory() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def lengths(sets: int, samples: int) -> list[int]:
    parts = [1 + n for n in range(sets)]
    return [samples * part // sum(parts) for part in parts]


def grain(sets: int, samples: int, count: int) -> tuple[float, int]:
    import grain.python as g  # type: ignore[import-not-found]

    before = memory()
    parts = [g.MapDataset.range(n).seed(n).shuffle().repeat() for n in lengths(sets, samples)]
    mixed = g.MapDataset.mix(parts, weights=[1.0 / (1 + n) for n in range(sets)])
    mixed[0]
    begin = time.perf_counter()
    for index in range(count):
        mixed[index]
    return count / (time.perf_counter() - begin), memory() - before


def warpfeed(sets: int, samples: int, count: int) -> tuple[float, int]:
    import numpy as np
    import warpfeed

    with TemporaryDirectory() as folder:
        parts = []
        for number, length in enumerate(lengths(sets, samples)):
            path = Path(folder, str(number), "x.npy")
            path.parent.mkdir()
            np.lib.format.open_memmap(path, "w+", np.uint8, (length, 1)).flush()
            parts.append((path, 1.0 / (1 + number)))
        before = memory()
        loader = warpfeed.Loader(
            parts, seed=1, batch_size=4096, drop_field=["image", "label"], output="numpy", prefetch=4,
            fields={"x": warpfeed.NdArray("u8", [1])},
        )  # fmt: skip
        begin, seen = time.perf_counter(), 0
        for batch in loader:
            seen += len(batch.ids)
            if seen >= count:
                break
        rate = seen / (time.perf_counter() - begin)
        return rate, memory() - before


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=35)
    parser.add_argument("--samples", type=int, default=35_000_000)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", choices=["grain", "warpfeed"])
    args = parser.parse_args()
    if args.one:
        rate, used = globals()[args.one](args.sets, args.samples, args.count)
        print(rate, used)
        return
    for name in ("grain", "warpfeed"):
        results = []
        for _ in range(args.rounds):
            options = ["--sets", args.sets, "--samples", args.samples, "--count", args.count, "--one", name]
            process = subprocess.run([sys.executable, __file__, *map(str, options)], capture_output=True, text=True)
            if process.returncode:
                print(f"{name}: not measured: {process.stderr.strip().splitlines()[-1]}")
                break
            rate, used = process.stdout.split()
            results.append((float(rate), int(used) / 2**20))
        if results:
            rates, memories = zip(*sorted(results), strict=True)
            middle = rates[len(rates) // 2]
            print(f"{name}: {middle:,.0f} samples/s ({rates[0]:,.0f} to {rates[-1]:,.0f}), {max(memories):.1f} MiB")


if __name__ == "__main__":
    main()
