"""Measures warpfeed and the other loaders on a machine without a GPU, in images per second delivered to host memory."""

import json
import os

from record import ROOT, SECONDS, WARMUP, Record, class_folders, described, installed, missing, rival, run

COPIES, BATCH = 6, 64
# Maximum duration of another loader's run, in seconds.
LONGEST = 180

SETTINGS = (
    "torch has one process per core, `prefetch_factor=4` and persistent workers; FFCV has `os_cache=True` and"
    " `batches_ahead=3`; DALI has one thread per core and `prefetch_queue_depth=4`. An epoch of torch and FFCV has at"
    " least 50,000 samples"
)
# Name of the result, entry in benches/peers/cpu.py, and required packages of each other loader.
RIVALS = [
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
    record = Record("host", options, described(options.photographs, COPIES), SETTINGS)
    workers = len(os.sched_getaffinity(0))
    missing(options.python, [(name, modules) for name, _, modules in RIVALS])
    rivals = [(name, peer) for name, peer, modules in RIVALS if installed(options.python, *modules)]

    def ours(name, path):
        command = [program, "bench", path, "--batch-size", BATCH, "--augment", "train", "--workers", workers]
        out = run([*command, "--seconds", SECONDS, "--warmup", WARMUP, "--json"])
        record.add(name, "images/s", round(json.loads(out)["samples_per_second"]))

    def theirs(name, peer):
        command = [options.python, ROOT / "benches/peers/cpu.py", options.photographs, options.work, peer]
        command += ["--workers", workers, "--batch", BATCH, "--copies", COPIES]
        command += ["--seconds", SECONDS, "--warmup", WARMUP]
        rival(record, name, run(command, timeout=LONGEST))

    for _ in range(options.rounds or 3):
        record.step("warpfeed, packed LMDB", lambda: ours("packed", packed))
        for name, peer in rivals:
            record.step(peer, lambda: theirs(name, peer))
        record.step("warpfeed, class folders", lambda: ours("folder", folder))
    return 0 if record.figures else 1
