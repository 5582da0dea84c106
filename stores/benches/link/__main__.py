"""Compares loaders that read photographs from an object store over a slow link, in one run.

    python stores/benches/link prepare PHOTOGRAPHS ROOT     # once; see prepare.py
    python stores/benches/link rates ROOT WORK --ms 30      # utilization of the link
    python stores/benches/link first ROOT WORK --ms 200     # time to the first batch, resume, epoch boundary
    python stores/benches/link cache ROOT WORK              # hit rate of a cache of a third of the dataset

All commands except `prepare` must run as root. A process forwards packets between two network
namespaces, by default at 1 Gbit/s (emulate.py). nginx serves the same photographs in every layout
(serve.py), and each library runs in a separate process (readers.py). All traffic stays in these
namespaces. If a library is not installed, its row contains the error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator

HERE = pathlib.Path(__file__).parent
ADDRESS, PORT = "10.77.0.2", 9000
CLIENT, SERVER = "wfclient", "wfserver"
BATCHES_BEFORE_RESUME = 20


@contextlib.contextmanager
def running(*command: object) -> Iterator[None]:
    """Runs a program until the end of the block. The program must print `ready` first."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"{command[-1]} did not start")
        yield
    finally:
        process.terminate()
        process.wait()


def in_namespace(namespace: str, *command: object) -> list[str]:
    return [str(word) for word in ("ip", "netns", "exec", namespace, *command)]


class Link:
    """Runs an emulated link to a server."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.work = options, options.work.resolve()
        self.log = self.work / "server/access.log"

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        ms, gbit = str(self.options.ms), str(self.options.gbit)
        shutil.rmtree(self.work / "server", ignore_errors=True)
        serve = [HERE / "serve.py", self.options.root, self.work / "server", "--address", ADDRESS, "--port", PORT]
        serve += ["--nginx", self.options.nginx]
        with running(sys.executable, HERE / "emulate.py", CLIENT, SERVER, "--ms", ms, "--gbit", gbit):
            with running(*in_namespace(SERVER, sys.executable, *serve)):
                yield

    def read(self, name: str, *extra: object) -> dict[str, object] | str:
        """Returns the result of a reader, or the last line of its error."""
        work = self.work / "reader"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        log_start = self.log.stat().st_size if self.log.exists() else 0
        # Don't bind readers to some of the cores: the other libraries size their thread pools by
        # the cores of the machine.
        command = in_namespace(CLIENT, self.options.python, "-W", "ignore", HERE / "readers.py", name, "--work", work)
        command += [str(word) for word in ("--server", f"http://{ADDRESS}:{PORT}", "--root", self.options.root, *extra)]
        environment = {**os.environ, "HOME": str(work), "PYTHONPATH": str(self.options.path)}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        try:
            out, err = process.communicate(timeout=self.options.seconds + 60)
        except subprocess.TimeoutExpired:
            out, err = "", "timeout"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        results = [line for line in out.splitlines() if line.startswith('{"name"')]
        if not results:
            return (err.strip().splitlines() or ["no result"])[-1]
        result = json.loads(results[-1])
        with self.log.open() as log:
            log.seek(log_start)
            requests = [line.split(" ", 4) for line in log]
        # nginx logs a line at the end of each response.
        requests = [line for line in requests if float(line[0]) <= result["ended"] + 0.05]
        result["requests"] = len(requests)
        result["sent"] = sum(int(line[3]) for line in requests)
        return result


def mean_bytes(root: pathlib.Path) -> float:
    sizes = [path.stat().st_size for path in (root / "photos/train").rglob("*.jpg")]
    return statistics.mean(sizes)


def print_header(*columns: str) -> None:
    print(f"| library | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}", flush=True)


def rates(options: argparse.Namespace) -> None:
    """Reads uncached epochs with each library for a fixed time."""
    from readers import CACHING

    link, mean = Link(options), mean_bytes(options.root)
    capacity = options.gbit * 1.25e8
    print(f"A link of {options.gbit:.0f} Gbit/s and a round trip of {options.ms:.0f} ms.\n")
    print_header(
        "share of the link, whole", "after a quarter", "images/s", "first batch, s", "bytes fetched / used", "requests"
    )
    with link.open():
        for name in options.only:
            epochs = 1 if name.startswith(CACHING) else options.epochs
            limits = ["--seconds", options.seconds, "--epochs", epochs]
            result = link.read(name, *limits, "--workers", options.workers)
            if isinstance(result, str):
                print(f"| {name} | {result} |", flush=True)
                continue
            record(options, result)
            arrivals = [batch for epoch in result["came"] for batch in epoch]
            samples = sum(number for _, number in arrivals)
            end = arrivals[-1][0]
            late = [(time, number) for time, number in arrivals if time >= end / 4]
            seconds = late[-1][0] - late[0][0]
            share = sum(number for _, number in late[1:]) * mean / seconds / capacity if seconds > 0 else float("nan")
            used = samples * mean
            cells = [f"{used / end / capacity:.1%}", f"{share:.1%}", f"{samples / end:.0f}", f"{arrivals[0][0]:.2f}"]
            cells += [f"{result['sent'] / used:.3f}", f"{result['requests']}"]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def first(options: argparse.Namespace) -> None:
    """Measures the times to the first batch and to the first batch after a resume, and the pause between epochs."""
    link, trip = Link(options), options.ms / 1000
    print(f"Times in round trips of {options.ms:.0f} ms. The first batches have 8 photographs.\n")
    print_header("first batch", "first batch after a resume", "pause at the epoch boundary", "median between batches")
    with link.open():
        for name in options.only:
            cells = []
            for extra in ([], ["--resume", BATCHES_BEFORE_RESUME]):
                result = link.read(name, "--seconds", 0, "--batch", 8, *extra)
                cells.append(result if isinstance(result, str) else f"{result['came'][0][0][0] / trip:.1f}")
            result = link.read(name, "--seconds", options.seconds, "--epochs", 2)
            if isinstance(result, str):
                cells.append(result)
            elif len(result["came"]) < 2 or sum(number for _, number in result["came"][0]) < options.samples:
                cells.append("the epoch did not end in time")
            else:
                one, two = result["came"]
                steps = [after[0] - before[0] for before, after in zip(one, one[1:])]
                cells += [f"{(two[0][0] - one[-1][0]) / trip:.2f}", f"{statistics.median(steps) / trip:.2f}"]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def cache(options: argparse.Namespace) -> None:
    """Measures the hit rate of a cache of a third of the dataset. On one machine, the optimum is one third."""
    link = Link(options)
    with link.open():
        result = link.read("warpfeed, a third cached", "--seconds", options.seconds, "--epochs", 5)
    if isinstance(result, str):
        raise SystemExit(result)
    before = {"disk_bytes": 0, "used_bytes": 0}
    print("| epoch | bytes from the cache | images/s |\n|---|---|---|")
    for number, (now, arrivals) in enumerate(zip(result["network"], result["came"])):
        hits, misses = (now[key] - before[key] for key in ("disk_bytes", "used_bytes"))
        seconds = arrivals[-1][0] - arrivals[0][0]
        rate = sum(samples for _, samples in arrivals[1:]) / seconds
        print(f"| {number} | {hits / (hits + misses):.1%} | {rate:.0f} |")
        before = now


def record(options: argparse.Namespace, result: dict[str, object]) -> None:
    with (options.work / "results.jsonl").open("a") as out:
        out.write(json.dumps({"ms": options.ms, "gbit": options.gbit, **result}) + "\n")


def main() -> None:
    if sys.argv[1:2] == ["prepare"]:
        sys.argv.pop(1)
        import prepare

        return prepare.main()
    from readers import READERS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rates", "first", "cache"])
    parser.add_argument("root", type=pathlib.Path, help="the buckets that `prepare` wrote")
    parser.add_argument("work", type=pathlib.Path, help="folder for logs, results and caches")
    parser.add_argument("--ms", type=float, default=30)
    parser.add_argument("--gbit", type=float, default=1)
    parser.add_argument("--seconds", type=float, default=14, help="seconds for each library")
    parser.add_argument("--epochs", type=int, default=100, help="maximum number of epochs for `rates`")
    parser.add_argument("--workers", type=int, default=8, help="worker processes of the other libraries")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--only", nargs="+", default=[name for name in READERS if "third" not in name])
    parser.add_argument("--python", default=sys.executable, help="Python interpreter for the readers")
    parser.add_argument("--path", default="", help="PYTHONPATH of that interpreter")
    parser.add_argument("--nginx", default="nginx")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    {"rates": rates, "first": first, "cache": cache}[options.what](options)


if __name__ == "__main__":
    main()
