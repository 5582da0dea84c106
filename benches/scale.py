#!/usr/bin/env python3
"""Measures costs that grow with the size of a dataset, and the memory that ranks on one machine share.

    python3 benches/scale.py                     all cases, as a table in Markdown; about 4 GB of disk
    python3 benches/scale.py --samples 1000000   smaller datasets: see --help
    python3 benches/scale.py drawn weights       these cases only
    python3 benches/scale.py ranks --devices 2   concurrent ranks that share two GPUs

Needs the Python package, built with optimization (`pip install ./python`), NumPy and Linux. Each
case runs in a separate process. "drawn" is a dataset of one-pixel images that are created in memory.

The columns are:
- the time until the loader is open,
- the CPU time until the loader is open,
- the time from opening the loader to its first batch,
- the memory in use after the first batch, and the peak memory; both exclude the memory of imported modules and of the
  case's own input,
- the size of a checkpoint.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
MINI = ROOT / "datasets" / "mini"
OPTIONS = {"batch_size": 256, "shuffle": True, "seed": 42, "num_workers": 1, "output": "numpy"}


class Drawn:
    """One-pixel images, which take almost no time to read."""

    IMAGE = (
        b"BM" + (58).to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little") + (40).to_bytes(4, "little")
        + (1).to_bytes(4, "little") * 2 + b"\x01\x00\x18\x00" + bytes(28)
    )  # fmt: skip

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.IMAGE, index % 1000


def originals():
    return sorted(MINI.rglob("*.jpg"))


def csv(folder, rows):
    """Writes a CSV file, unless it exists. All rows refer to the same few images."""
    path = folder / f"{rows}.csv"
    if not path.exists():
        names = [str(original) for original in originals()]
        with open(path, "w") as file:
            file.write("path,label\n")
            for first in range(0, rows, len(names)):
                file.write(
                    "".join(f"{name},{place % 1000}\n" for place, name in enumerate(names[: rows - first], first))
                )
    return path


def coco(folder, entries):
    """Writes a COCO file with two boxes per image, unless the file exists."""
    path = folder / f"{entries}.json"
    if not path.exists():
        names = [str(original.relative_to(MINI)) for original in originals()]
        with open(path, "w") as file:
            file.write('{"categories":[{"id":1,"name":"thing"}],"images":[')
            for id in range(entries):
                original = {"id": id, "file_name": names[id % len(names)], "width": 64, "height": 64}
                file.write(("," if id else "") + json.dumps(original))
            file.write('],"annotations":[')
            for id in range(2 * entries):
                box = {
                    "id": id,
                    "image_id": id // 2,
                    "category_id": 1,
                    "bbox": [1.5, 2.5, 20.25, 30.75],
                    "area": 622.7,
                    "iscrowd": 0,
                }
                file.write(("," if id else "") + json.dumps(box))
            file.write("]}")
    return path


def tar(folder, samples):
    """Writes a tar, unless it exists. Each sample is a one-pixel image with a label."""
    path = folder / f"{samples}.tar"
    if not path.exists():

        def header(name, size):
            head = bytearray(512)
            head[: len(name)] = name
            head[100:108], head[124:136] = b"0000644\0", b"%011o\0" % size
            head[148:156], head[156:157], head[257:265] = b" " * 8, b"0", b"ustar\x0000"
            head[148:156] = b"%06o\0 " % sum(head)
            return bytes(head)

        with open(path, "wb") as file:
            for sample in range(samples):
                name, label = b"%09d" % sample, b"%d" % (sample % 1000)
                file.write(header(name + b".bmp", len(Drawn.IMAGE)) + Drawn.IMAGE.ljust(512, b"\0"))
                file.write(header(name + b".cls", len(label)) + label.ljust(512, b"\0"))
            file.write(bytes(1024))
    return path


def arguments(case, sizes, folder):
    """Returns the dataset and the loader options of a case. This is not measured."""
    import numpy as np
    import warpfeed

    samples = sizes["samples"]
    options = {**OPTIONS, "augment": warpfeed.Augment.eval(8, 8)}
    if case == "every second sample":
        return Drawn(samples), {**options, "subset": np.arange(0, samples, 2)}
    if case == "half, in random order":
        return Drawn(samples), {**options, "subset": np.random.default_rng(1).permutation(samples)[: samples // 2]}
    if case == "weights":
        return Drawn(samples), {**options, "shuffle": False, "weights": np.random.default_rng(1).random(samples)}
    if case == "table":
        return str(csv(folder, sizes["rows"])), {**options, "table": warpfeed.TableOptions(image="path")}
    if case == "COCO":
        return warpfeed.Coco(str(coco(folder, sizes["entries"])), images=str(MINI)), {**options, "drop_field": ["label"]}
    if case.startswith("shard"):
        path = tar(folder, sizes["entries"])
        if case == "shard, first time":
            path.with_name(path.name + ".index").unlink(missing_ok=True)
        return str(path), options
    return Drawn(samples), options


def status(name):
    """Returns the field `name` of /proc/self/status, in bytes."""
    lines = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


def measure(case, sizes, folder, rank=None, devices=0):
    """Measures a case in this process, and prints the results as a line of JSON."""
    import warpfeed

    data, options = arguments(case, sizes, folder)
    if rank is not None:
        options |= {"rank": rank[0], "world_size": rank[1]}
    if devices:
        options |= {"output": "dlpack", "device": f"cuda:{rank[0] % devices}"}
    # Exclude imports and the one-time memory of a process's first loader.
    with warpfeed.Loader(Drawn(8), **OPTIONS, augment=warpfeed.Augment.eval(8, 8)) as small:
        next(iter(small))
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before, begun, used = status("VmRSS"), time.perf_counter(), time.process_time()
    loader = warpfeed.Loader(data, **options)
    opened, cpu_seconds = time.perf_counter(), time.process_time() - used
    batches = iter(loader)
    next(batches)
    first = time.perf_counter()
    results = {
        "open": opened - begun,
        "cpu": cpu_seconds,
        "first": first - opened,
        "memory": status("VmRSS") - before,
        "most": status("VmHWM") - before,
        "state": len(json.dumps(loader.state_dict())),
    }
    print(json.dumps(results), flush=True)
    if rank is not None:
        # Now every rank has opened its loader, so the PSS of a rank contains only the rank's share
        # of shared pages.
        sys.stdin.readline()
        lines = pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        print(json.dumps({"pss": sizes["Pss"], "rss": sizes["Rss"]}), flush=True)
        sys.stdin.readline()


def started(case, options, *extra):
    command = [sys.executable, __file__, "--one", case, "--folder", str(options.folder), *extra]
    for name in ("samples", "rows", "entries"):
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--devices", str(options.devices)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ranks(case, options, world):
    """Opens `world` ranks concurrently. Returns the time until all have a batch, and their mean CPU
    time, RSS and PSS."""
    begun = time.perf_counter()
    processes = [started(case, options, "--rank", str(rank), str(world)) for rank in range(world)]
    results = [json.loads(process.stdout.readline()) for process in processes]
    seconds = time.perf_counter() - begun
    for step in range(2):
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        if step == 0:
            sizes = [json.loads(process.stdout.readline()) for process in processes]
    for process in processes:
        process.wait()

    def mean(of, name):
        return sum(each[name] for each in of) / world

    return seconds, mean(results, "cpu"), mean(sizes, "rss"), mean(sizes, "pss")


def megabytes(count):
    return f"{count / 1e6:,.0f} MB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases = [
        "drawn",
        "every second sample",
        "half, in random order",
        "weights",
        "table",
        "COCO",
        "shard, first time",
        "shard",
    ]
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join([*cases, "ranks"]))
    parser.add_argument("--samples", type=int, default=100_000_000, help="number of samples in the generated dataset")
    parser.add_argument("--rows", type=int, default=10_000_000, help="number of rows in the table")
    parser.add_argument("--entries", type=int, default=1_000_000, help="number of entries in the COCO file and in the shard")
    parser.add_argument("--world", type=int, default=8, help="number of concurrent ranks")
    parser.add_argument("--devices", type=int, default=0, help="number of GPUs for the ranks; 0 measures host batches")
    parser.add_argument("--folder", type=pathlib.Path, help="folder for the files; default: a temporary folder")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--rank", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = {name: getattr(options, name) for name in ("samples", "rows", "entries")}
    if options.one:
        return measure(options.one, sizes, options.folder, options.rank, options.devices if options.rank else 0)
    with tempfile.TemporaryDirectory() as temporary:
        options.folder = options.folder or pathlib.Path(temporary)
        options.folder.mkdir(parents=True, exist_ok=True)
        chosen = options.cases or [*cases, "ranks"]
        print(f"{sizes}, {os.cpu_count()} cores\n")
        print(
            "| case | opening | CPU | first batch | memory | peak memory | checkpoint |\n|---|---|---|---|---|---|---|"
        )
        for case in [case for case in cases if case in chosen]:
            process = started(case, options)
            line, _ = process.communicate()
            if process.returncode != 0:
                sys.exit(f"{case}: exit code {process.returncode}")
            result = json.loads(line)
            cells = [
                case, f"{result['open']:.2f} s", f"{result['cpu']:.2f} s", f"{result['first']:.2f} s",
                megabytes(result["memory"]), megabytes(result["most"]), f"{result['state']} bytes",
            ]  # fmt: skip
            print("| " + " | ".join(cells) + " |", flush=True)
        if "ranks" in chosen:
            print(
                "\n| ranks | case | time until all have a batch | CPU time per rank until open | RSS per rank | PSS per rank |"
            )
            print("|---|---|---|---|---|---|")
            for case in ("shard", "table", "COCO"):
                arguments(case, sizes, options.folder)
                for world in (1, options.world):
                    seconds, cpu, rss, pss = ranks(case, options, world)
                    print(
                        f"| {world} | {case} | {seconds:.2f} s | {cpu:.2f} s | {megabytes(rss)} | {megabytes(pss)} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
