"""Measures warpfeed and the other loaders on a machine without a GPU, in images per second delivered to host memory."""

import json
import os

from record import (
    ROOT,
    SECONDS,
    WARMUP,
    Record,
    class_folders,
    photograph_summary,
    are_installed,
    print_missing,
    add_peer_result,
    run,
)

COPIES, BATCH = 6, 64
# Maximum duration of another loader's run, in seconds.
MAX_SECONDS = 180

SETTINGS = (
    "torch has one process per core, `prefetch_factor=4` and persistent workers; FFCV has `os_cache=True` and"
    " `batches_ahead=3`; DALI has one thread per core and `prefetch_queue_depth=4`. An epoch of torch and FFCV has at"
    " least 50,000 samples"
)
# Name of the result, entry in benches/peers/cpu.py, and required packages of each other loader.
OTHER_LOADERS = [
    ("torch", "torchvision_u8", ["torch", "torchvision"]),
    ("ffcv", "ffcv", ["ffcv"]),
    ("dali", "dali", ["nvidia.dali"]),
]


def measure(options):
    program = options.program
    if program is None:
        run(["cargo", "build", "--release", "-p", "warpfeed-cli"], cwd=ROOT)
        program = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "warpfeed"
    folder = class_folders(options.photographs, options.work, COPIES)
    packed = options.work / f"images-{COPIES}.lmdb"
    run([program, "pack", folder, packed, "--force"])
    record = Record("host", options, photograph_summary(options.photographs, COPIES), SETTINGS)
    workers = len(os.sched_getaffinity(0))
    print_missing(options.python, [(name, modules) for name, _, modules in OTHER_LOADERS])
    other_loaders = [(name, peer) for name, peer, modules in OTHER_LOADERS if are_installed(options.python, *modules)]

    def measure_warpfeed(name, path):
        command = [program, "bench", path, "--batch-size", BATCH, "--augment", "train", "--workers", workers]
        out = run([*command, "--seconds", SECONDS, "--warmup", WARMUP, "--json"])
        record.add(name, "images/s", round(json.loads(out)["samples_per_second"]))

    def measure_peer(name, peer):
        command = [options.python, ROOT / "benches/peers/cpu.py", options.photographs, options.work, peer]
        command += ["--workers", workers, "--batch", BATCH, "--copies", COPIES]
        command += ["--seconds", SECONDS, "--warmup", WARMUP]
        add_peer_result(record, name, run(command, timeout=MAX_SECONDS))

    for _ in range(options.rounds or 3):
        record.step("warpfeed, packed LMDB", lambda: measure_warpfeed("packed", packed))
        for name, peer in other_loaders:
            record.step(peer, lambda: measure_peer(name, peer))
        record.step("warpfeed, class folders", lambda: measure_warpfeed("folder", folder))
    return 0 if record.figures else 1
