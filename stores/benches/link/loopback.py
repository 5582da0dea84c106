"""Measures the CPU cost of reading photographs from a local web server and from local files.

    python loopback.py PHOTOGRAPHS --nginx PROGRAM --seconds 12

Packs the photographs, and repeats them in tar shards until the dataset is large enough for a
shuffle. By default, the GPU decodes them. nginx serves the shards on the loopback interface.
"Reading" is the CPU time of the threads that transfer bytes, plan requests and wait for samples,
without the workers and the server.
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).parent
PORT = 9000
TICK = os.sysconf("SC_CLK_TCK")
#: Number of shards, and number of photographs in each shard.
SHARDS, EACH = 16, 640
#: Number of bytes needed for the dataset, the packed photographs and the logs.
FREE_BYTES = 2 << 30

GROUPS = {
    "transfer": re.compile("warpfeed-store"),
    "requests": re.compile("warpfeed-fetch"),
    "readers": re.compile("warpfeed-read"),
    "workers": re.compile(r"warpfeed-\d+"),
    "copy to the GPU": re.compile("warpfeed-(copy|pinned|wait|free)"),
    "rest of the program": re.compile(""),
}
READING = ("transfer", "requests", "readers")


def cpu_seconds(process: int | str, names: bool = True) -> collections.Counter[str]:
    """Returns CPU seconds by group of threads."""
    seconds: collections.Counter[str] = collections.Counter()
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        try:
            name, stat = (task / "comm").read_text().strip(), (task / "stat").read_text()
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        group = next(group for group, names in GROUPS.items() if names.match(name)) if names else "server"
        seconds[group] += (int(fields[11]) + int(fields[12])) / TICK
    return seconds


def children(process: int) -> list[int]:
    results = [process]
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            results.append(int(path.parent.name))
    return results


def write_shards(photographs: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes shards of the packed photographs, which have restart markers, and their indexes."""
    program = [sys.executable, "-m", "warpfeed"]
    packed = folder.parent / "packed.tar"
    subprocess.run([*program, "pack", str(photographs), str(packed)], check=True, stdout=subprocess.DEVNULL)
    samples: dict[str, list[tuple[str, bytes]]] = {}
    with tarfile.open(packed) as tar:
        for entry in tar:
            stem, _, extension = entry.name.rpartition("/")[2].partition(".")
            samples.setdefault(stem, []).append((extension, tar.extractfile(entry).read()))
    files = [fields for fields in samples.values() if any(extension in ("jpg", "jpeg") for extension, _ in fields)]
    folder.mkdir(parents=True)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"train-{shard:06}.tar", "w", format=tarfile.USTAR_FORMAT) as out:
            for number in range(EACH):
                for extension, data in files[(shard * EACH + number) % len(files)]:
                    entry = tarfile.TarInfo(f"{shard:03}{number:04}.{extension}")
                    entry.size = len(data)
                    out.addfile(entry, io.BytesIO(data))
    subprocess.run([*program, "inspect", str(folder)], check=True, stdout=subprocess.DEVNULL)


def measure(name: str, url: str, server: subprocess.Popen | None, options: argparse.Namespace, **extra: object) -> None:
    import warpfeed

    device = {"device": options.device, "decode_on": "gpu"} if options.device != "cpu" else {"output": "numpy"}
    loader = warpfeed.Loader(
        url, batch_size=256, augment=warpfeed.Augment.train(224), unlabeled=True, **device, **extra
    )
    start_time, images, first = time.monotonic(), 0, None
    before = after = None
    while after is None:
        for batch in loader:
            now = time.monotonic()
            first = first or now - start_time
            images += 256
            del batch
            if before is None and now - start_time > options.warmup:
                before = (now, images, cpu_seconds("self"), server_cores(server), loader.stats())
            if before is not None and now - before[0] > options.seconds:
                after = (now, images, cpu_seconds("self"), server_cores(server), loader.stats())
                break
    seconds = after[0] - before[0]
    cores = {group: (after[2][group] - before[2][group]) / seconds for group in GROUPS}
    rate = (after[1] - before[1]) / seconds
    network = after[4].since(before[4])["network"] if hasattr(after[4], "since") else None
    used = (network["used_bytes"] / seconds) if network else rate * options.mean
    reading = sum(cores[group] for group in READING)
    result = {
        "name": name, "GB/s": round(used / 1e9, 3), "images/s": round(rate), "reading cores": round(reading, 2),
        "server cores": round((after[3] - before[3]) / seconds, 2), "first batch, s": round(first, 3),
        **{f"cores of {group}": round(number, 2) for group, number in cores.items()},
    }  # fmt: skip
    if network:
        result["requests/s"] = round(network["requests"] / seconds)
        result["KB each"] = round(network["received_bytes"] / max(1, network["requests"]) / 1e3)
    print(json.dumps(result), flush=True)
    print(f"  {str(loader.verdict()).splitlines()[0]}", flush=True)
    loader.close()


def server_cores(server: subprocess.Popen | None) -> float:
    if server is None:
        return 0.0
    # nginx is a child of the listing process, and its workers are children of nginx.
    return sum(sum(cpu_seconds(pid, False).values()) for child in children(server.pid)[1:] for pid in children(child))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=pathlib.Path)
    parser.add_argument("--nginx", default="nginx")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--warmup", type=float, default=4)
    parser.add_argument(
        "--memory", type=pathlib.Path, default=pathlib.Path("/dev/shm"), help="preferred folder for the shards"
    )
    options = parser.parse_args()
    start_time = time.monotonic()
    # Containers often have little shared memory, so the free space is checked first.
    has_space = options.memory.is_dir() and shutil.disk_usage(options.memory).free > FREE_BYTES
    work = pathlib.Path(tempfile.mkdtemp(dir=options.memory if has_space else None))
    server = None
    try:
        shards = work / "root/tar/train"
        write_shards(options.photographs, shards)
        total = sum(path.stat().st_size for path in shards.glob("*.tar"))
        options.mean = total / SHARDS / EACH
        print(f"{os.cpu_count()} cores, {SHARDS * EACH} photographs, {total / 1e9:.2f} GB", flush=True)
        serve = [
            sys.executable,
            HERE / "serve.py",
            work / "root",
            work / "server",
            "--nginx",
            options.nginx,
            "--processes",
            "4",
        ]
        server = subprocess.Popen([str(word) for word in serve], stdout=subprocess.PIPE, text=True)
        if server.stdout.readline() != "ready\n":
            raise SystemExit("the server did not start")
        url = f"http://127.0.0.1:{PORT}/tar/train/train-{{000000..{SHARDS - 1:06}}}.tar"
        measure("full shuffle over HTTP", url, server, options, shuffle=True, seed=42)
        measure("shuffle_window over HTTP", url, server, options, shuffle=True, seed=42, shuffle_window=896)
        measure("full shuffle of the same files", str(shards), None, options, shuffle=True, seed=42)
        print(f"all in {time.monotonic() - start_time:.0f} s")
    finally:
        if server is not None:
            server.terminate()
            server.wait()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
