"""Compares the time to load an epoch of token windows with the time to copy the same bytes.

The windows are shuffled. A single thread copies the windows in the same order as the loader, from a
memory map to a batch that is reused. The file is in the page cache.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import warpfeed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--dtype", default="u16")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokens.bin")
        np.random.default_rng(1).integers(0, 50_000, args.tokens, dtype=np.uint16).tofile(path)
        loader = warpfeed.Loader(
            warpfeed.Tokens(path, args.length), batch_size=args.batch_size, shuffle=True, seed=1, drop_last=True, output="numpy",
            fields={"tokens": warpfeed.TokenIds(args.length, args.dtype)}, copy=False,
        )  # fmt: skip
        stored = np.memmap(path, np.uint16, "r")
        windows = stored[: len(stored) // args.length * args.length].reshape(-1, args.length)
        orders = [np.array(batch.ids) for batch in loader.epoch_from(0, 0)]
        target = np.empty((args.batch_size, args.length), {"u16": "u2", "i32": "i4", "i64": "i8"}[args.dtype])
        times: dict[str, list[float]] = {"loader": [], "copy": []}
        for _ in range(args.rounds):
            begin = time.perf_counter()
            for _batch in loader.epoch_from(0, 0):
                pass
            times["loader"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            for ids in orders:
                np.take(windows, ids, 0, target) if args.dtype == "u16" else np.copyto(target, windows[ids])
            times["copy"].append(time.perf_counter() - begin)
        loader.close()
    best = {name: min(seconds) for name, seconds in times.items()}
    print(f"loader {best['loader']:.3f} s, copy {best['copy']:.3f} s, ratio {best['loader'] / best['copy']:.2f}")


if __name__ == "__main__":
    main()
