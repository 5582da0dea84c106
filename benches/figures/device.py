"""Runs the benchmarks for a machine with a GPU: batches in device memory, requests, and training.

Needs only the files of `bundle`: no Rust and no network.
"""

import json
import os
import re
import zipfile

from record import ROOT, Record, class_folders, described, installed, missing, rival, run

COPIES = 40
# Timeout of another loader's run, in seconds.
LONGEST = 90
PEERS = ROOT / "benches" / "peers"


class Setup:
    """The unpacked bundle, the class folders, and the LMDB packed from them."""

    def __init__(self, group, options):
        self.bundle, self.python = options.bundle.resolve(), options.python
        torch = ("torch", ["torch", "torchvision"])
        missing(self.python, [torch] if group == "requests" else [torch, ("DALI", ["nvidia.dali"])])
        build = json.loads((self.bundle / "bundle.json").read_text())["commit"]
        site = options.work.resolve() / "site"
        [wheel] = self.bundle.glob("*.whl")
        zipfile.ZipFile(wheel).extractall(site)
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = f"{site}{os.pathsep}{before}" if before else str(site)
        for program in ("decode_gpu", "decoder"):
            (self.bundle / program).chmod(0o755)
        self.photographs = self.bundle / "photographs"
        self.folder = class_folders(self.photographs, options.work.resolve(), COPIES)
        self.packed = self.folder.with_suffix(".lmdb")
        if not self.packed.exists():
            run([self.python, "-m", "warpfeed", "pack", self.folder, self.packed])
        self.record = Record(group, options, described(self.photographs, COPIES), build)
        available = len(os.sched_getaffinity(0))
        self.cores = [n for n in (16, 4, 1) if n <= available] or [available]

    def add_versions(self):
        script = "import torch, torchvision; print(torch.__version__, torchvision.__version__)"
        found = run([self.python, "-c", script]).split()
        self.record.about["versions"].update(zip(("torch", "torchvision"), found))
        if installed(self.python, "nvidia.dali"):
            found = run([self.python, "-c", "import nvidia.dali; print(nvidia.dali.__version__)"]).strip()
            self.record.about["versions"]["nvidia-dali-cuda130"] = found


def measure(options):
    setup = Setup("device", options)
    for _ in range(options.rounds or 2):
        for cores in setup.cores:
            setup.record.step(f"warpfeed, cores: {cores}", lambda: loaders(setup, cores))
            setup.record.step(f"torch, cores: {cores}", lambda: peer(setup, "torch", "torchvision", cores))
            if installed(setup.python, "nvidia.dali"):
                setup.record.step(f"DALI, cores: {cores}", lambda: peer(setup, "dali", "dali_mixed", cores))
    return 0 if setup.record.figures else 1


def loaders(setup, cores):
    """Runs one turn of benches/decode_gpu.rs on both datasets, with each way of decoding."""
    out = run([setup.bundle / "decode_gpu", setup.packed, setup.folder, "--seconds", 1, "--turns", 1], cores)
    store = {str(setup.packed): "packed", str(setup.folder): "folder"}
    path = None
    for line in out.splitlines():
        path = store.get(line.strip(), path)
        if found := re.match(r"\s+(Cpu|Gpu|Auto)\s+(\d+)\s+([\d.]+)", line):
            name = f"{path}/{found[1].lower()}/{cores}"
            setup.record.add(name, "images/s", int(found[2]))
            if found[1] == "Gpu":
                setup.record.add(f"{path}/device-time/{cores}", "ms", float(found[3]))


def peer(setup, name, which, cores):
    # Long enough that the batches prefetched during the warm-up do not matter.
    command = [setup.python, PEERS / "gpu.py", setup.folder, which, "--workers", cores, "--batches", 8 + 8 * cores]
    rival(setup.record, f"{name}/{cores}", run(command, cores, timeout=LONGEST))


def requests(options):
    setup = Setup("requests", options)
    setup.add_versions()
    for _ in range(options.rounds or 3):
        setup.record.step("warpfeed", lambda: decoder(setup))
        setup.record.step("nvJPEG", lambda: nvjpeg(setup))
    return 0 if setup.record.figures else 1


def decoder(setup):
    """Runs one turn of benches/decoder.rs: requests decoded by the device, one at a time and four in flight."""
    out = run([setup.bundle / "decoder", setup.photographs, "--seconds", 0.5])
    for line in out.splitlines():
        if found := re.match(r"Gpu\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+(\d+)\s+(\d+)", line):
            latency(setup.record, "warpfeed", *found.groups()[:4])
            setup.record.add(f"warpfeed/{found[1]}/four", "images/s", int(found[5]))


def nvjpeg(setup):
    out = run([setup.python, PEERS / "decoder.py", setup.photographs, "--seconds", 0.5], timeout=LONGEST)
    for line in out.splitlines():
        if found := re.match(r"batch\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+(\d+)", line):
            latency(setup.record, "nvjpeg", *found.groups())


def latency(record, name, size, median, late, rate):
    record.add(f"{name}/{size}/ms", "ms", float(median))
    record.add(f"{name}/{size}/99", "ms", float(late))
    record.add(f"{name}/{size}/rate", "images/s", int(rate))


def train(options):
    setup = Setup("training", options)
    feeds = ["repeated", "warpfeed", "warpfeed auto", "torch"]
    feeds += ["dali 0.9"] if installed(setup.python, "nvidia.dali") else []
    result = options.work.resolve() / "train.json"

    def once(cores):
        command = [setup.python, ROOT / "python/benches/train.py", "--data", setup.packed, "--folder", setup.folder]
        command += ["--models", "resnet18", "--feeds", ",".join(feeds), "--rounds", 1, "--window", 3]
        result.unlink(missing_ok=True)
        run([*command, "--seconds", 90, "--json", result], cores, timeout=2 * LONGEST)
        for name, found in json.loads(result.read_text()).items():
            for rate in found["rates"]:
                setup.record.add(f"{name}/{cores}", "images/s", round(rate))

    setup.add_versions()
    for _ in range(options.rounds or 2):
        for cores in [n for n in setup.cores if n > 1]:
            setup.record.step(f"ResNet-18, cores: {cores}", lambda: once(cores))
    return 0 if setup.record.figures else 1
