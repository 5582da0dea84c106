"""Measures several loaders in turns, for `mixtures.py` and `robots.py`.

Each measurement runs in its own process, so that no leftover threads or processes of one library
slow down the next. The first turn measures every setting of a loader; later turns repeat the best
one.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

RESULT = "measured: "


class Unsupported(Exception):
    """No setting lets the loader run this benchmark."""


def memory():
    """The proportional set size of this process and its descendants, in MiB."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                pass
    family, size = {os.getpid()}, 0
    while extra := {child for child, parent in parents.items() if parent in family} - family:
        family |= extra
    for process in family:
        try:
            lines = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        size += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return size / 1024


def report(**result):
    print(RESULT + json.dumps(result), flush=True)


def finish(rate):
    """Prints the result, and ends this process. If it leads its process group, ends the whole group."""
    report(rate=rate, memory=memory())
    os.killpg(0, 9) if os.getpgid(0) == os.getpid() else os._exit(0)


def unsupported(reason):
    """Prints why a loader cannot be measured, and ends this process."""
    report(unsupported=reason)
    sys.exit(0)


def run(script, arguments, timeout):
    """Runs a script that calls `finish` or `unsupported`."""
    with tempfile.TemporaryFile("w+") as errors:
        pipes = {"stdout": subprocess.PIPE, "stderr": errors, "text": True}
        command = [sys.executable, script, *map(str, arguments)]
        process = subprocess.Popen(command, **pipes, start_new_session=True)
        try:
            output = process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no result after {timeout} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        line = next((line for line in output.splitlines() if line.startswith(RESULT)), None)
        if line is None:
            errors.seek(0)
            raise RuntimeError(errors.read().strip()[-300:])
    result = json.loads(line.removeprefix(RESULT))
    if "unsupported" in result:
        raise Unsupported(result["unsupported"])
    return result


def add_arguments(parser, peers, default, seconds, warmup):
    parser.add_argument("--peers", nargs="+", choices=peers, default=default)
    parser.add_argument("--turns", type=int, default=3, help="number of measurements of each loader")
    parser.add_argument("--cores", type=int, default=2, help="threads of warpfeed and of the decode-only baselines")
    parser.add_argument("--sweep", type=int, nargs="+", default=[0, 1, 2, 4], help="workers of the other loaders")
    parser.add_argument("--seconds", type=float, default=seconds, help="seconds to measure")
    parser.add_argument("--warmup", type=float, default=warmup, help="seconds of warm-up, beginning with the first batch")
    parser.add_argument("--timeout", type=float, default=300, help="seconds after which a measurement fails")
    parser.add_argument("--workers", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)


def main(script, options, arguments, titles, peers, settings, unit):
    """Measures the chosen loaders for each title with `script`, and returns the exit code.

    `peers` maps a name to its function and its packages. `settings` gets the options, a name and a title.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `run` kills its child
    versions = {peer: packages for peer, (_, packages) in peers.items()}
    failed = False
    for title in titles:

        def one(peer, setting, title=title):
            return run(script, [*arguments, "--one", peer, title, *setting], options.timeout)

        loaders = {peer: settings(options, peer, title) for peer in options.peers}
        failed |= compare(one, loaders, options.turns, title, unit(title), versions)
    return int(failed)


def compare(measure, loaders, turns, title, unit, versions):
    """Prints each measurement, and then a summary of each loader. Returns whether a measurement failed.

    `loaders` maps a name to its settings, each a tuple of arguments. `measure` gets a name and a setting. `versions`
    maps a name to the packages whose versions are printed. A summary states how many times as fast the first loader is.
    """
    sweep, results, failed = {}, {}, False
    for turn in range(turns):
        for name, settings in loaders.items():
            if turn > 0:
                rates = sweep.get(name)
                settings = [max(rates, key=rates.get)] if rates else []
            for setting in settings:
                try:
                    result = measure(name, setting)
                except Unsupported as e:
                    print(f"RESULT {title} {name}: not supported: {e}", flush=True)
                    break
                except Exception as e:  # a loader that is missing or fails must not stop the others
                    failed = True
                    print(f"FAILED {title} {' '.join([name, *setting])}: {str(e)[-300:]}", flush=True)
                    continue
                print(f"turn {turn + 1} {title} {' '.join([name, *setting])}: {result['rate']:.0f} {unit}", flush=True)
                sweep.setdefault(name, {}).setdefault(setting, result["rate"])
                results.setdefault((name, setting), []).append(result)
    first = base = None
    for name, rates in sweep.items():
        best = max(rates, key=rates.get)
        runs = [result["rate"] for result in results[name, best]]
        size = statistics.median(result["memory"] for result in results[name, best])
        packages = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in versions[name])
        rate = statistics.median(runs)
        first, base = first or name, base or rate
        line = f"RESULT {title} {' '.join([name, *best])} ({packages}): {rate:.0f} {unit}"
        line += f" ({min(runs):.0f} to {max(runs):.0f}, {len(runs)} runs), {size:.0f} MiB"
        line += "" if name == first else f"; {first} is {base / rate:.2f} times as fast"
        if len(rates) > 1:
            line += "; sweep: " + ", ".join(f"{' '.join(setting)} {rate:.0f}" for setting, rate in rates.items())
        print(line, flush=True)
    return failed
