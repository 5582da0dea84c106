#!/usr/bin/env python3
"""Compares the Python package with each format's own library, on the same images.

    python3 benches/formats.py IMAGES              all formats, as tables in Markdown
    python3 benches/formats.py IMAGES hdf5 mds     these formats only

IMAGES is a folder of class folders that contain JPEGs. The JPEGs are repeated until a dataset has --samples samples.
Each format's own library, if it has one, writes the dataset to a temporary folder. Formats of arrays contain decoded
pixels, resized to 256x256. If the library of a format is not installed, the script prints a message and skips the
format.

Reading only: torch's `DataLoader` reads through the library with two worker processes, in shuffled
order, without decoding. warpfeed reads on a single thread, as measured by `warpfeed doctor`.

End to end: the library and warpfeed both shuffle, take random 224x224 crops, flip, and collate batches of 64.
For the library, two worker processes decode with Pillow and augment with torchvision; FFCV uses its own loader, decoder
and transforms. warpfeed uses two worker threads.
A Parquet page contains several images, so warpfeed shuffles Parquet rows in windows of 1,000.

"Warm" means that the files are in the page cache. "Cold" means that the files were evicted from the page cache, and
that no sample is read twice.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))

from libraries import BATCH, FORMATS, SIZE, WORKERS, Samples, batches, batch_length  # noqa: E402


def library_rate(name, samples, folder, decoded, seconds, cold):
    """Returns the images per second of the format's own library, excluding the first batch. Returns
    None if the library cannot read without decoding."""
    rows = FORMATS[name].open(samples, folder, decoded)
    if rows is None:
        return None
    if cold:
        evict(folder)
    loader = iter(batches(name, rows, decoded))
    next(loader)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        batch = next(loader, None)
        if batch is None and cold:
            break
        if batch is None:
            loader = iter(batches(name, rows, decoded))
            continue
        count += batch_length(batch)
    return count / (time.perf_counter() - start)


def evict(folder):
    """Evicts every file in `folder` from the page cache."""
    os.sync()
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_into_cache(folder):
    """Reads every file in `folder` into the page cache."""
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                while file.read(1 << 24):
                    pass


def warpfeed_rate(name, path, count, seconds, cold):
    """Returns the images per second of warpfeed, excluding the first batch."""
    import warpfeed

    options = {"shuffle_window": 1000} if name == "parquet" else {}
    augment = warpfeed.Augment.train(SIZE)
    loader = warpfeed.Loader(
        str(path), batch_size=BATCH, shuffle=True, seed=42, augment=augment, layout="nchw", num_workers=WORKERS, **options
    )
    with loader:
        iterator = iter(loader)
        next(iterator)
        start, images = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            batch = next(iterator, None)
            if batch is None and cold:
                break
            if batch is None:
                iterator = iter(loader)
                continue
            images += len(batch[1])
        return images / (time.perf_counter() - start)


def measure_format(name, root, count, seconds, folder):
    """Measures one format, and prints its rates as JSON. `main` runs this in a separate process."""
    samples = Samples(root, count)
    path = FORMATS[name].write(samples, folder)
    evict(folder)
    doctor = [sys.executable, "-m", "warpfeed", "doctor", str(path), "--json"]
    storage = json.loads(subprocess.run(doctor, check=True, capture_output=True).stdout)["alone"]
    results = {}
    for kind, reading in [("reading warm", "second"), ("reading cold", "first"), ("warm", None), ("cold", None)]:
        cold = "cold" in kind
        evict(folder) if cold else read_into_cache(folder)
        if reading:
            warpfeed_result = storage[f"{reading}_read_bytes_per_second"] * storage["samples"] / storage["bytes"]
        else:
            warpfeed_result = warpfeed_rate(name, path, count, seconds, cold)
        results[kind] = warpfeed_result, library_rate(name, samples, folder, not reading, seconds, cold)
    print(json.dumps(results), flush=True)


def result_cells(warpfeed, library):
    return f"{warpfeed:,.0f} | {library:,.0f} | {warpfeed / library:.1f}" if library else f"{warpfeed:,.0f} | - | - "


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=pathlib.Path, help="folder of class folders that contain JPEGs")
    parser.add_argument("formats", nargs="*", help=f"formats to measure, any of: {', '.join(FORMATS)}")
    parser.add_argument("--samples", type=int, default=8000, help="number of samples in each dataset (default 8000)")
    parser.add_argument("--seconds", type=float, default=5, help="duration of each measurement in seconds (default 5)")
    parser.add_argument("--folder", help="folder for the datasets; must be on the disk to measure")
    parser.add_argument("--one", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = set(args.formats) - set(FORMATS)
    if unknown:
        parser.error(f"unknown formats: {', '.join(sorted(unknown))}; choose from {', '.join(FORMATS)}")
    root = args.images.resolve()
    if args.one:
        return measure_format(args.formats[0], root, args.samples, args.seconds, args.one)
    if not len(Samples(root, 1)):
        parser.error(f"no JPEGs in the folders of {root}")
    kinds = ["reading warm", "reading cold", "warm", "cold"]
    actual = {}
    for name in args.formats or FORMATS:
        with tempfile.TemporaryDirectory(dir=args.folder) as temporary:
            numbers = ["--samples", str(args.samples), "--seconds", str(args.seconds)]
            command = [sys.executable, __file__, str(root), name, *numbers, "--one", temporary]
            process = subprocess.run(command, capture_output=True, text=True)
        if process.returncode:
            cause = process.stderr.strip().splitlines()[-1:] or [f"exited with code {process.returncode}"]
            print(f"{name}: {cause[0]}", file=sys.stderr)
            continue
        actual[name] = json.loads(process.stdout.splitlines()[-1])
        print(f"{name}: {actual[name]}", file=sys.stderr, flush=True)
    print(f"{args.samples} images, {WORKERS} workers, images/s\n")
    for title, kinds in [("reading only", kinds[:2]), ("end to end", kinds[2:])]:
        print(f"| {title} | warpfeed, warm | own library, warm | ratio | warpfeed, cold | own library, cold | ratio |")
        print("|---|---|---|---|---|---|---|")
        for name, figures in actual.items():
            cells = " | ".join(result_cells(*figures[kind]) for kind in kinds)
            print(f"| {FORMATS[name].title} | {cells} |")
        print()


if __name__ == "__main__":
    main()
