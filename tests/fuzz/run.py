#!/usr/bin/env python3
"""Fuzzes the parsers of dataset formats in parallel, and prints a table in Markdown.

    python3 tests/fuzz/run.py BINARY --seconds 3600 --cores 32             most formats, an hour each
    python3 tests/fuzz/run.py BINARY --seconds 60 --cores 2 hdf5 parquet   only harnesses with these words
    python3 tests/fuzz/run.py BINARY --table                               results so far

By default, the harnesses of tars, tables, tokens, class lists and annotations are left out.

BINARY is a test binary of `warpfeed-sources` with coverage counters; tests/README.md has the
command that builds it. This script needs no Rust toolchain and no source tree, only
tests/fixtures/formats below ROOT (two folders above this script, or the folder of the script if
the fixtures are there). That folder contains a symbolic link, so copy it with cp -rL.

SECONDS is the CPU time per harness, summed over all runs of the same binary. A harness runs in
parts, so that even the last remaining harness can use all cores. Each part uses seeds of its own,
and starts with the inputs that have reached new edges so far. These inputs, a record of each part,
and all failures are stored in the folder KEEP, so repeating the command continues an interrupted
run.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time

FORMATS = (
    "arrow_files features_of_datasets parquet_files lerobot_sets mds_files litdata_files lmdb_value lmdb_pickled lmdb_meta "
    "pickles_of_python npy_files npz_files safetensors_files torch_files hdf5_files tfrecord_files beton_files "
    "recordio_files mp4_files matroska_files"
).split()
# Maximum memory of a case in bytes. The inputs are only a few kilobytes.
MEMORY = 4 << 30
# A harness stops after this number of failures.
FAILURES = 20


class Runs:
    """The parts that have finished or are running."""

    def __init__(self, options, harnesses):
        self.options, self.harnesses, self.lock = options, harnesses, threading.Lock()
        self.file = options.keep / "parts.jsonl"
        self.binary = hashlib.sha256(options.binary.read_bytes()).hexdigest()[:16]
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.parts = [part for part in map(json.loads, lines) if part["binary"] == self.binary]
        self.planned = {harness: self.sum(harness, "seconds") for harness in harnesses}
        self.number = len(self.parts)

    def sum(self, harness, column):
        return sum(part[column] for part in self.parts if part["harness"] == harness)

    def left(self):
        """Returns the harnesses that can start a part."""
        if time.monotonic() > self.options.end - 1:
            return []
        expected = [harness for harness in self.harnesses if self.planned[harness] < self.options.seconds]
        return [harness for harness in expected if self.sum(harness, "failures") < FAILURES]

    def next(self):
        """Returns a harness with the CPU time and number of its next part, or None if no part can start."""
        with self.lock:
            left = self.left()
            if not left:
                return None
            harness = min(left, key=self.planned.get)
            parts = self.options.seconds / self.options.cores
            seconds = max(1, min(self.options.seconds - self.planned[harness], parts))
            seconds = min(seconds, self.options.end - time.monotonic())
            self.planned[harness] += seconds
            self.number += 1
            return harness, seconds, self.number

    def ended(self, part, planned):
        with self.lock:
            # If a part used less CPU time than planned, an additional part makes up for it.
            self.planned[part["harness"]] += part["seconds"] - planned
            self.parts.append(part)
            with self.file.open("a") as file:
                file.write(json.dumps(part) + "\n")


def run(runs, harness, seconds, number):
    """Runs one part of a harness in a child process."""
    keep = runs.options.keep
    with tempfile.TemporaryDirectory(dir=runs.options.scratch) as scratch:
        last = pathlib.Path(scratch, "last")
        environment = dict(
            os.environ,
            CARGO_MANIFEST_DIR=str(runs.options.root),
            TMPDIR=scratch,
            WARPFEED_FUZZ_CORPUS=str(keep / "corpus"),
            WARPFEED_FUZZ_LAST=str(last),
            WARPFEED_FUZZ_SECONDS=str(max(1, round(seconds))),
            # Each part uses seeds that no other part and no other binary uses.
            WARPFEED_FUZZ_SEED=str((int(runs.binary[:4], 16) << 46) + (number << 34)),
        )
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [runs.options.binary, "--exact", harness, "--nocapture"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
            )
            # Panics are caught by the harness. If a case never ends, this time limit ends the part.
            timer = threading.Timer(2 * seconds + 120, process.kill)
            timer.start()
            _, status, used = os.wait4(process.pid, 0)
            timer.cancel()
            output.seek(0)
            text = output.read().decode(errors="replace")
        counts = re.search(r"(\d+) cases from .*, (\d+) accepted, (\d+) failures", text)
        edges = re.search(r"(\d+) of (\d+) edges reached", text)
        part = dict(zip(("cases", "accepted", "failures"), map(int, counts.groups() if counts else (0, 0, 1))))
        if status != 0:
            part["failures"] = max(1, part["failures"])
            folder = keep / "failures" / f"{harness.split('::')[-1]}-{number}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "output.txt").write_text(f"status {status}\n{text}")
            for file in pathlib.Path(scratch).iterdir():
                if file.is_file() and file.name.startswith(("last", "warpfeed-fuzz-")):
                    shutil.copy(file, folder)
        part["edges"], part["of"] = map(int, edges.groups()) if edges else (0, 0)
    part = {"binary": runs.binary, "harness": harness, **part, "seconds": used.ru_utime + used.ru_stime}
    runs.ended(part, seconds)


def work(runs):
    while part := runs.next():
        run(runs, *part)


def table(runs):
    print("| harness | cases | accepted | edges | failures | CPU seconds |\n|---|---|---|---|---|---|")
    for harness in runs.harnesses:
        parts = [part for part in runs.parts if part["harness"] == harness]
        sums = {column: sum(part[column] for part in parts) for column in ("cases", "accepted", "failures", "seconds")}
        # Each part starts with the inputs of earlier parts, so the largest number of edges is the
        # total.
        edges = max((part["edges"] for part in parts), default=0)
        name = harness.split("::")[-1]
        print(
            f"| `{name}` | {sums['cases']:,} | {sums['accepted']:,} | {edges:,} | {sums['failures']} "
            f"| {sums['seconds']:,.0f} |"
        )
    failed = sum(runs.sum(harness, "failures") for harness in runs.harnesses)
    if failed:
        print(f"\n{failed} failures: {runs.options.keep / 'failures'} has their output and inputs")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("harness", nargs="*", help="words in the names of harnesses; default: most formats")
    parser.add_argument("--seconds", type=float, default=60, help="CPU seconds per harness (60)")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="concurrent processes (all cores)")
    parser.add_argument("--minutes", type=float, default=1e9, help="end after this many minutes (no limit)")
    parser.add_argument("--keep", type=pathlib.Path, default="fuzz-kept", help="folder for inputs and records")
    parser.add_argument("--table", action="store_true", help="print the table of earlier runs and exit")
    options = parser.parse_intermixed_args()
    options.end = time.monotonic() + 60 * options.minutes
    options.binary, options.keep = options.binary.resolve(), options.keep.resolve()
    options.keep.mkdir(parents=True, exist_ok=True)
    options.scratch = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = pathlib.Path(__file__).resolve().parent
    options.root = folder if (folder / "tests/fixtures").exists() else folder.parents[1]

    listed = subprocess.run([options.binary, "--list"], stdout=subprocess.PIPE, check=True, text=True)
    known = re.findall(r"^(\S*fuzz\S*::(\w+)): test$", listed.stdout, re.MULTILINE)
    expected = options.harness or FORMATS
    harnesses = [name for name, short in known if any(w == short or options.harness and w in short for w in expected)]
    missing = [word for word in expected if not any(word in name for name in harnesses)]
    if missing:
        sys.exit(f"{options.binary} has no harness {', '.join(missing)}; it has {', '.join(s for _, s in known)}")

    runs = Runs(options, harnesses)
    if not options.table:
        # The last parts may have used less time than planned, so continue until nothing is left.
        while runs.left():
            with concurrent.futures.ThreadPoolExecutor(options.cores) as pool:
                for future in [pool.submit(work, runs) for _ in range(options.cores)]:
                    future.result()
    sys.exit(1 if table(runs) else 0)


if __name__ == "__main__":
    main()
