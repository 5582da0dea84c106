"""Runs the benchmarks for a machine with a GPU: batches in device memory, requests, and training.

Needs this repository and the files of `bundle`, but no Rust and no network.
"""

import json
import os
import re
import shutil
import subprocess
import zipfile

from record import (
    HERE,
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

COPIES = 40
DALI_PACKAGE = "nvidia-dali-cuda130"
# Maximum duration of another loader's run, in seconds.
MAX_SECONDS = 90
PEERS = ROOT / "benches" / "peers"
# Values of DALI's `hw_decoder_load` that a sweep tries, and seconds per value.
SHARES, SWEEP_SECONDS = ["0.0", "0.65", "0.9", "1.0"], 2
TORCH = "torch has one process per core, `prefetch_factor={}`, persistent workers and page-locked memory"
DALI = "DALI has one thread per core and `prefetch_queue_depth=4`. Epochs have at least 50,000 samples"
SETTINGS = {
    "device": f"{TORCH.format(4)}, and normalizes on the GPU; {DALI}",
    "training": f"{TORCH.format(2)}; {DALI}",
    "requests": "torchvision resizes, crops and stacks on the GPU, one request at a time. It cannot keep several in"
    " flight",
}


class Setup:
    """The unpacked bundle, the class folders, and the LMDB packed from them."""

    def __init__(self, group, options):
        self.bundle, self.python = options.bundle.resolve(), options.python
        torch = ("torch", ["torch", "torchvision"])
        print_missing(self.python, [torch] if group == "requests" else [torch, ("DALI", ["nvidia.dali"])])
        built_commit = json.loads((self.bundle / "bundle.json").read_text())["commit"]
        package_folder = options.work.resolve() / "site"
        [wheel] = self.bundle.glob("*.whl")
        zipfile.ZipFile(wheel).extractall(package_folder)
        python_path = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = f"{package_folder}{os.pathsep}{python_path}" if python_path else str(package_folder)
        for program in ("decode_gpu", "decoder"):
            (self.bundle / program).chmod(0o755)
        self.photographs = self.bundle / "photographs"
        self.folder = class_folders(self.photographs, options.work.resolve(), COPIES)
        self.packed = self.folder.with_suffix(".lmdb")
        if not self.packed.exists():
            run([self.python, "-m", "warpfeed", "pack", self.folder, self.packed])
        self.record = Record(
            group, options, photograph_summary(self.photographs, COPIES), SETTINGS[group], built_commit
        )
        core_count = len(os.sched_getaffinity(0))
        self.cores = [n for n in options.cores if n <= core_count] or [core_count]

    def pack_large_photographs(self):
        """Creates class folders in which 1% of the samples are enlarged photographs, and packs
        them."""
        folder = self.folder.with_name("tail")
        packed = folder.with_suffix(".lmdb")
        if not packed.exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.folder, folder, copy_function=os.link)
            large = sorted((self.bundle / "large").iterdir())
            for i in range(round(sum(1 for _ in self.folder.rglob("*.JPEG")) / 99)):
                shutil.copy(large[i % len(large)], folder / f"class{i % 10}" / f"large_{i:05d}.JPEG")
            run([self.python, "-m", "warpfeed", "pack", folder, packed])
        return packed, folder

    def add_versions(self):
        script = "import torch, torchvision; print(torch.__version__, torchvision.__version__)"
        result = run([self.python, "-c", script]).split()
        self.record.about["versions"].update(zip(("torch", "torchvision"), result))
        if are_installed(self.python, "nvidia.dali"):
            self.record.about["versions"][DALI_PACKAGE] = self.dali_version()

    def dali_version(self):
        return run([self.python, "-c", "import nvidia.dali; print(nvidia.dali.__version__)"]).strip()


def measure(options):
    setup = Setup("device", options)
    record, dali = setup.record, are_installed(setup.python, "nvidia.dali")
    for cores in setup.cores if dali else []:
        if options.keep_sweep and keep_sweep(setup, cores):
            continue
        record.step(f"DALI's share of the JPEG engine, cores: {cores}", lambda: sweep(setup, cores))
    for _ in range(options.rounds or 3):
        for cores in setup.cores:
            sets = {"packed": setup.packed, "folder": setup.folder}
            record.step(
                f"warpfeed, the GPU decodes, cores: {cores}", lambda: measure_loaders(setup, sets, "Gpu", cores)
            )
            record.step(f"warpfeed, workers decode, cores: {cores}", lambda: measure_loaders(setup, sets, "Cpu", cores))
            record.step(f"torch, cores: {cores}", lambda: peer(setup, "torch", "torchvision", cores))
            if dali:
                record.step(f"DALI, cores: {cores}", lambda: peer(setup, "dali", "dali_mixed", cores))
        record.step("warpfeed, 1% large photographs", lambda: measure_large_photographs(setup))
    return 0 if record.figures else 1


def measure_large_photographs(setup):
    measure_loaders(
        setup, dict(zip(("packed-tail", "folder-tail"), setup.pack_large_photographs())), "Gpu", setup.cores[0]
    )


def measure_loaders(setup, sets, decoder, cores):
    """Runs one round of benches/decode_gpu.rs. `sets` maps names to datasets; `decoder` is "Gpu" or
    "Cpu"."""
    command = [setup.bundle / "decode_gpu", *sets.values(), "--only", decoder, "--rounds", 1]
    out = run([*command, "--seconds", SECONDS, "--warmup", WARMUP], cores)
    names = {str(path): name for name, path in sets.items()}
    name, actual = None, []
    for line in out.splitlines():
        name = names.get(line.strip(), name)
        if row := re.match(rf"\s+{decoder}\s+(\d+)\s+([\d.]+)\s.*\s([\d.]+)$", line):
            actual.append(name)
            setup.record.add(f"{name}/{decoder.lower()}/{cores}", "images/s", int(row[1]))
            if decoder == "Gpu":
                setup.record.add(f"{name}/device-time/{cores}", "ms", float(row[2]))
                setup.record.add(f"{name}/wait/{cores}", "ms", float(row[3]))
    if actual != list(sets):
        raise RuntimeError(f"figures of {actual}, expected {list(sets)}, in the output: {out}")


def peer(setup, result_name, peer_name, cores):
    command = [setup.python, PEERS / "gpu.py", setup.folder, peer_name, "--workers", cores]
    command += ["--seconds", SECONDS, "--warmup", WARMUP]
    if result_name == "dali":
        command += ["--hardware", setup.record.about["hw_decoder_load"][str(cores)]]
    add_peer_result(setup.record, f"{result_name}/{cores}", run(command, cores, timeout=MAX_SECONDS))


def sweep(setup, cores):
    """Records the best share of images for DALI's JPEG engine."""
    command = [setup.python, PEERS / "gpu.py", setup.folder, "dali_mixed", "--workers", cores, "--hardware", *SHARES]
    try:
        out = run([*command, "--seconds", SWEEP_SECONDS, "--warmup", WARMUP], cores, timeout=2 * MAX_SECONDS)
    except subprocess.CalledProcessError as e:  # DALI failed with one of the shares
        out = e.stdout
    for line in out.splitlines():
        if match := re.match(r"RESULT dali_mixed:([\d.]+) ", line):
            add_peer_result(setup.record, f"dali {match[1]}/{cores}", line)
    record_best_share(setup.record, cores, "dali {}/{}", out)


def record_best_share(record, cores, name, out):
    rates = {share: record.figures.get(name.format(share, cores)) for share in SHARES}
    rates = {share: max(figure["rounds"]) for share, figure in rates.items() if figure}
    if not rates:
        raise RuntimeError(f"no share of the JPEG engine works: {out}")
    record.about.setdefault("hw_decoder_load", {})[str(cores)] = max(rates, key=rates.get)


def keep_sweep(setup, cores):
    """Copies the sweep of an earlier record. Returns whether the record has one for this number of
    cores, this GPU and this version of DALI."""
    about = setup.record.about
    earlier = json.loads((HERE / f"{about['group']}.json").read_text())
    share = earlier.get("hw_decoder_load", {}).get(str(cores))
    same = earlier["gpu"] == about["gpu"] and earlier["versions"].get(DALI_PACKAGE) == setup.dali_version()
    if share is None or not same:
        return False
    about.setdefault("hw_decoder_load", {})[str(cores)] = share
    about["sweep_date"] = earlier.get("sweep_date", earlier["date"])
    sweep_key = re.compile(rf"(resnet18/)?dali [\d.]+/{cores}")
    setup.record.figures.update(item for item in earlier["figures"].items() if sweep_key.fullmatch(item[0]))
    return True


def requests(options):
    setup = Setup("requests", options)
    setup.add_versions()
    for _ in range(options.rounds or 3):
        setup.record.step("warpfeed", lambda: measure_decoder(setup))
        setup.record.step("nvJPEG", lambda: measure_nvjpeg(setup))
    return 0 if setup.record.figures else 1


def measure_decoder(setup):
    """Runs one round of benches/decoder.rs: requests decoded by the device, one at a time and four
    in flight."""
    out = run([setup.bundle / "decoder", setup.photographs, "--seconds", 0.5])
    for line in out.splitlines():
        if match := re.match(r"Gpu\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+(\d+)\s+(\d+)", line):
            add_latency(setup.record, "warpfeed", *match.groups()[:4])
            setup.record.add(f"warpfeed/{match[1]}/four", "images/s", int(match[5]))


def measure_nvjpeg(setup):
    out = run([setup.python, PEERS / "decoder.py", setup.photographs, "--seconds", 0.5], timeout=MAX_SECONDS)
    for line in out.splitlines():
        if match := re.match(r"batch\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+(\d+)", line):
            add_latency(setup.record, "nvjpeg", *match.groups())


def add_latency(record, name, size, median, p99, rate):
    record.add(f"{name}/{size}/ms", "ms", float(median))
    record.add(f"{name}/{size}/99", "ms", float(p99))
    record.add(f"{name}/{size}/rate", "images/s", int(rate))


def train(options):
    setup = Setup("training", options)
    record, dali = setup.record, are_installed(setup.python, "nvidia.dali")
    feeds = ["repeated", "warpfeed", "warpfeed auto", "warpfeed folder", "warpfeed folder auto", "torch"]

    def measure_once(cores):
        best_share = record.about.get("hw_decoder_load", {}).get(str(cores))
        for name, rate in training_rates(
            setup, [*feeds, f"dali {best_share}"] if best_share else feeds, SECONDS, cores
        ):
            record.add(f"{'resnet18/dali' if '/dali ' in name else name}/{cores}", "images/s", rate)

    def sweep(cores):
        for name, rate in training_rates(setup, [f"dali {share}" for share in SHARES], SWEEP_SECONDS, cores):
            record.add(f"{name}/{cores}", "images/s", rate)
        record_best_share(record, cores, "resnet18/dali {}/{}", "")

    setup.add_versions()
    multi_core_counts = [n for n in setup.cores if n > 1]
    for cores in multi_core_counts if dali else []:
        if options.keep_sweep and keep_sweep(setup, cores):
            continue
        record.step(f"DALI's share of the JPEG engine, cores: {cores}", lambda: sweep(cores))
    for _ in range(options.rounds or 3):
        for cores in multi_core_counts:
            record.step(f"ResNet-18, cores: {cores}", lambda: measure_once(cores))
    return 0 if record.figures else 1


def training_rates(setup, feeds, seconds, cores):
    """Runs one round of ResNet-18 with each loader. Returns pairs of a name and its images/s."""
    result_path = setup.packed.with_name("train.json")
    result_path.unlink(missing_ok=True)
    command = [setup.python, ROOT / "python/benches/train.py", "--data", setup.packed, "--folder", setup.folder]
    command += ["--models", "resnet18", "--feeds", ",".join(feeds), "--rounds", 1, "--seconds", 2 * MAX_SECONDS]
    run([*command, "--window", seconds, "--warmup", WARMUP, "--json", result_path], cores, timeout=2 * MAX_SECONDS)
    rates = {name: figures["rates"] for name, figures in json.loads(result_path.read_text()).items()}
    return [(name, round(rate)) for name in rates for rate in rates[name]]
