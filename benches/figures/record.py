"""Records one measurement: every round of every result, with machine, date and commit."""

import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
START_TIME = time.monotonic()
# Duration of a measurement and of its warm-up in seconds, for every loader.
SECONDS, WARMUP = 5, 1
# The load average that other programs cause, read before the benchmarks start.
LOAD = round(os.getloadavg()[0], 1)


def cpu():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def gpu():
    """Returns the name and the driver of the first GPU, or None."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None
    return result.replace(", ", ", driver ")


def commit():
    """Returns the measured commit, with `+` if its sources have uncommitted changes."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=True)
        sources = ["src", "jpeg/src", "sources/src", "cli", "python/src", "Cargo.toml", "Cargo.lock"]
        status = subprocess.run([*git, "status", "--porcelain", "--", *sources], capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if status.stdout.strip() else "")


class Record:
    """A measurement. `add` appends the value of a round; `save` writes all values."""

    def __init__(self, group, options, data, settings, build=None):
        self.path, self.limit, self.failed = options.out / f"{group}.json", options.limit, set()
        source = "--photographs DIR" if group == "host" else "--bundle OUT"
        self.about = {
            "group": group,
            "date": datetime.date.today().isoformat(),
            "commit": build or commit(),
            "machine": f"{len(os.sched_getaffinity(0))} cores ({cpu()}), Linux {platform.release()}",
            "gpu": None if group == "host" else gpu(),
            "load": LOAD,
            "data": data,
            "settings": settings,
            "command": f"python3 benches/figures measure {group} {source}",
            "seconds": SECONDS,
            "warmup": WARMUP,
            "versions": {},
        }
        self.figures = {}
        if options.add and self.path.exists():
            self.extend(json.loads(self.path.read_text()))

    def extend(self, earlier):
        """Continues a record of the same code on the same kind of machine, for example with more
        cores."""
        compared_keys = ["commit", "machine", "gpu", "data", "settings", "seconds", "warmup"]
        if differences := [key for key in compared_keys if earlier.get(key) != self.about[key]]:
            difference_text = ", ".join(
                f"{key} is {earlier.get(key)!r}, now {self.about[key]!r}" for key in differences
            )
            sys.exit(
                f"{self.path}: --add needs a record of the same measurement, but {difference_text}: measure without --add"
            )
        self.about, self.figures = {k: v for k, v in earlier.items() if k != "figures"}, earlier["figures"]

    def add(self, name, unit, value):
        figure = self.figures.setdefault(name, {"unit": unit, "rounds": []})
        figure["rounds"].append(value)
        print(f"    {name}: {value:,.2f} {unit}", flush=True)

    def step(self, name, run):
        """Runs one step if enough time is left. A step that fails is reported and not repeated."""
        elapsed_seconds = time.monotonic() - START_TIME
        if elapsed_seconds > self.limit or name in self.failed:
            reason = "failed before" if name in self.failed else "no time is left"
            print(f"  {name}: skipped, {reason} ({elapsed_seconds:.0f} s)", flush=True)
            return
        print(f"  {name} ({elapsed_seconds:.0f} s)", flush=True)
        try:
            run()
        except subprocess.CalledProcessError as e:
            self.failed.add(name)
            print(f"    failed: {' '.join(map(str, e.cmd))}\n{e.stdout}\n{e.stderr}", flush=True)
        except Exception as e:  # keep the results of the other steps
            self.failed.add(name)
            print(f"    failed: {type(e).__name__}: {e}", flush=True)
        self.save()

    def save(self):
        for figure in self.figures.values():
            rounds = figure["rounds"]
            figure.update(median=statistics.median(rounds), min=min(rounds), max=max(rounds))
        text = json.dumps({**self.about, "figures": self.figures}, indent=1)
        # Put each list of rounds on one line.
        text = re.sub(r"\[\s+([^\[\]]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text)
        self.path.write_text(text + "\n")


def run(command, cores=None, **options):
    """Runs a command, on the first `cores` cores of this process if given, and returns its
    output."""
    cpu_ids = sorted(os.sched_getaffinity(0))[:cores]
    pin_process = (lambda: os.sched_setaffinity(0, cpu_ids)) if cores else None
    command = [str(part) for part in command]
    return subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=pin_process, **options).stdout


def are_installed(python, *modules):
    """Returns whether an interpreter can import these modules."""
    test = "import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))"
    return subprocess.run([python, "-c", test, *modules], stderr=subprocess.DEVNULL).returncode == 0


def print_missing(python, other_loaders):
    """Prints which other loaders cannot be measured. `other_loaders` has pairs of a
    name and modules."""
    for name, modules in other_loaders:
        if not are_installed(python, *modules):
            print(f"  {name} is not installed for {python}: its cells stay empty", flush=True)


def add_peer_result(record, name, output):
    """Adds the result and the versions of a `RESULT` line from benches/peers."""
    for line in output.splitlines():
        if match := re.match(r"RESULT \S+ \((.*)\), \d+ workers: (\d+) images/s", line):
            record.about["versions"].update(part.rsplit(" ", 1) for part in match[1].split(", "))
            record.add(name, "images/s", int(match[2]))
            return
    raise RuntimeError(f"no RESULT line in the output: {output}")


def class_folders(photographs, work, copies):
    """Creates ten class folders with `copies` links to each photograph, for all loaders."""
    sys.path.insert(0, str(ROOT / "benches" / "peers"))
    import argparse

    import cpu

    return cpu.class_folders(argparse.Namespace(photographs=photographs, work=work, copies=copies))


def photograph_summary(folder, copies):
    """Returns the number, the mean size and the links of the JPEGs in a folder and its
    subfolders."""
    sizes = [p.stat().st_size for p in folder.rglob("*") if p.suffix.lower() in (".jpeg", ".jpg")]
    return f"{len(sizes)} photographs (mean {sum(sizes) / len(sizes) / 1000:.0f} KB), {copies} links to each"
