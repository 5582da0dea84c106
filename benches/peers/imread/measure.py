"""Compares decoders of whole images, using imread-benchmark's own measurement code.

    python measure.py FOLDER warpfeed simplejpeg torchvision [--passes 3] [--rounds 3]

Images that some decoder cannot decode to three channels are excluded and counted. Each run is a
fresh process on one core. imread-benchmark's `decode-memory` protocol validates the output, warms
up, and times passes over JPEGs held in memory, with the garbage collector off. Rounds alternate
between the decoders. The table lists images per second (median and range over all passes), and how many
images decode to different pixels, or to a different size, than with the first decoder.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
from types import SimpleNamespace


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="a folder of JPEGs")
    parser.add_argument("decoders", nargs="+", help="names that `imread-benchmark list-decoders` prints")
    parser.add_argument("--passes", type=int, default=3, help="timed passes of each process")
    parser.add_argument("--rounds", type=int, default=3, help="timed processes of each decoder")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--exclude", nargs="*", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return measure_here(options)
    rates, last_results, excluded = {name: [] for name in options.decoders}, {}, set()
    for name in options.decoders:
        excluded.update(run(options, name, excluded, "--check")["unsupported"])
    for _ in range(options.rounds):
        for name in options.decoders:
            last_results[name] = run(options, name, excluded)
            rates[name] += last_results[name]["rates"]
    first = statistics.median(rates[options.decoders[0]])
    images = last_results[options.decoders[0]]["images"]
    print(f"{images} images on one core ({len(excluded)} unsupported images skipped)\n")
    print("| decoder | version | images/s (range) | relative | other pixels than the first decoder | other size |")
    print("|---|---|---|---|---|---|")
    for name, decoder_rates in rates.items():
        result, middle = last_results[name], statistics.median(decoder_rates)
        spread = f"{min(decoder_rates):,.0f} to {max(decoder_rates):,.0f}"
        levels = f" (by at most {result['levels']} of 255)" if result["levels"] else ""
        different = f"{result['other_pixels']}{levels} | {result['other_size']}"
        print(f"| {name} | {result['version']} | {middle:,.0f} ({spread}) | {middle / first:.2f} | {different} |")


def run(options, name, excluded, *extra):
    """Runs this script for one decoder in a new process, and returns the JSON that it prints."""
    command = [sys.executable, __file__, str(options.folder), name, options.decoders[0], "--one", *extra]
    command += ["--passes", str(options.passes), "--exclude", *sorted(excluded)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        sys.exit(f"{name} failed; see the output above")
    return json.loads(result.stdout.splitlines()[-1])


def measure_here(options):
    """Pins this process to one core, checks or measures one decoder, and prints the result as JSON."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import importlib.metadata

    import numpy as np
    from imread_benchmark.contracts import OutputContract, validate_output
    from imread_benchmark.decoders import REGISTRY, BaseDecoder
    from imread_benchmark.execution.measurement import configure_decoder, run_decode_memory_measurement

    name, reference = options.decoders
    decoder, first = REGISTRY[name](), REGISTRY[reference]()
    settable = type(decoder).set_num_threads is not BaseDecoder.set_num_threads
    threads = configure_decoder(decoder, 1 if settable else None)
    paths = sorted(p for p in options.folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    items = [SimpleNamespace(item_id=p.name, data=p.read_bytes(), compressed_bytes=p.stat().st_size) for p in paths]
    items = [item for item in items if item.item_id not in options.exclude]
    if options.check:
        unsupported = []
        for item in items:
            try:
                validate_output(decoder.decode(item.data), OutputContract.normalized_rgb())
            except Exception:  # each library raises its own exception types
                unsupported.append(item.item_id)
        print(json.dumps({"unsupported": unsupported}))
        return
    other_pixels = other_size = levels = 0
    for item in items:
        actual, expected = decoder.decode(item.data), first.decode(item.data)
        if actual.shape != expected.shape:
            other_size += 1
        elif not np.array_equal(actual, expected):
            other_pixels += 1
            levels = max(levels, int(np.abs(actual.astype(int) - expected.astype(int)).max()))
    configuration = SimpleNamespace(
        protocol_id="decode-memory",
        warmup_passes=1,
        logical_repeat_factor=1,
        timed_passes_per_run=options.passes,
        minimum_timed_seconds=0.0,
        requested_threads=threads,
    )
    result = run_decode_memory_measurement(decoder, items, configuration, effective_threads=threads)
    rates = [sample.items_processed / sample.elapsed_seconds for sample in result.samples]
    version = importlib.metadata.version(decoder.package_name)
    counts = {"images": len(items), "other_pixels": other_pixels, "other_size": other_size, "levels": levels}
    print(json.dumps({"rates": rates, "version": version, **counts}))


if __name__ == "__main__":
    main()
