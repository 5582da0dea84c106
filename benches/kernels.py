"""Lists registers, shared memory and occupancy of each kernel for each GPU generation. Needs no GPU.

    pip download --no-deps nvidia-cuda-nvcc-cu12==12.9.86 && unzip nvidia_cuda_nvcc*.whl
    cargo build -p warpfeed-cli
    python3 benches/kernels.py nvidia/cuda_nvcc/bin/ptxas            # writes the table
    python3 benches/kernels.py nvidia/cuda_nvcc/bin/ptxas --check    # fails if it differs

ptxas compiles the committed PTX, as the driver does when a loader is opened, and reports the
resources that each kernel uses. `warpfeed occupancy` computes how many warps fit on a
multiprocessor. The table is in the README of the kernels.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "src/device/nvidia/kernels"
PAGE = KERNELS / "README.md"
BEGIN, END = "<!-- registers: benches/kernels.py -->\n", "<!-- end of registers -->\n"
# The oldest supported GPU, and one of each later generation. ptxas 12.9 is the last version that
# supports compute capability 7.0.
CAPABILITIES = ["7.0", "7.5", "8.0", "8.9", "9.0", "10.0", "12.0"]
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
REGISTERS = re.compile(r"Used (\d+) registers(?:.*?, (\d+) bytes smem)?")
SPILLS = re.compile(r"(\d+) bytes spill stores")


def block_sizes():
    """Returns the block size of each entry point, which is the launch bound in its PTX."""
    results = {}
    for file in ("convert", "retouch", "jpeg"):
        text = (KERNELS / f"{file}.ptx").read_text(encoding="utf-8")
        for name, block in re.findall(r"\.entry (\w+)\(.*?\.maxntid (\d+)", text, re.S):
            results[name] = int(block)
    return results


def dynamic_bytes():
    """Returns the bytes of dynamic shared memory per launch of `jpeg_resize`, for all but very wide
    crops and for the widest crops."""
    lines = (ROOT / "src/device/nvidia/decode.rs").read_text(encoding="utf-8")
    columns = (ROOT / "src/batch/records/decode.rs").read_text(encoding="utf-8")
    normal_bytes = int(re.search(r"const ROW_SUMS_BYTES: usize = (\d+) << 10;", lines)[1]) << 10
    max_columns, shift = map(int, re.search(r"const MAX_COLUMNS: u32 = (\d+) << (\d+);", columns).groups())
    widest_bytes = 4 * ((max_columns << shift) + 6)
    return normal_bytes + 16, widest_bytes + 16


def kernel_resources(ptxas, capability):
    """Returns the registers, the bytes of shared memory, and the bytes of spilled registers of each
    entry point."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for file in ("convert", "retouch", "jpeg"):
            command = [ptxas, "-v", f"-arch=sm_{capability.replace('.', '')}", KERNELS / f"{file}.ptx", "-o", f"{folder}/x"]
            report = subprocess.run(command, check=True, capture_output=True, text=True).stderr
            for part in report.split("ptxas info    : Compiling")[1:]:
                name = ENTRY.search("Compiling" + part)[1]
                registers, shared = REGISTERS.search(part).groups()
                results[name] = int(registers), int(shared or 0), int(SPILLS.search(part)[1])
    return results


def occupancy(program, capability, registers, shared, block):
    command = [program, "occupancy", "--regs", str(registers), "--smem", str(shared), "--cc", capability]
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.search(rf"^ +{block} .*?([\d.]+)%", table, re.M)[1])


def rows(ptxas, program):
    block_size, (normal_bytes, widest_bytes) = block_sizes(), dynamic_bytes()
    results = {capability: kernel_resources(ptxas, capability) for capability in CAPABILITIES}
    cells = {}
    for capability, kernels in results.items():
        if kernels.keys() != block_size.keys():
            raise SystemExit(f"{capability}: ptxas and the PTX have different kernels: {kernels.keys() ^ block_size.keys()}")
        for name, (registers, shared, spilled) in kernels.items():
            max_shared = shared + (widest_bytes if name == "jpeg_resize" else 0)
            shared += normal_bytes if name == "jpeg_resize" else 0
            if max_shared > 48 << 10 or occupancy(program, capability, registers, max_shared, block_size[name]) == 0:
                raise SystemExit(f"{name} cannot be launched on {capability}: {registers} registers, {max_shared} bytes")
            share = occupancy(program, capability, registers, shared, block_size[name])
            cells[name, capability] = f"{registers}{'*' if spilled else ''}, {share:.0f}%", shared
    yield f"| kernel | threads | shared | {' | '.join(CAPABILITIES)} |"
    yield "|---|---|---|" + "---|" * len(CAPABILITIES)
    # Kernels with identical results, such as the f16 and bf16 variants, share a row.
    kernels_of_row = {}
    for name in block_size:
        shared = sorted({cells[name, capability][1] for capability in CAPABILITIES})
        row = (block_size[name], "-".join(map(str, shared)), *(cells[name, capability][0] for capability in CAPABILITIES))
        kernels_of_row.setdefault(row, []).append(name)
    for row, names in kernels_of_row.items():
        yield f"| {', '.join(f'`{name}`' for name in names)} | {' | '.join(map(str, row))} |"


def main(ptxas, check=None):
    program = ROOT / "target/debug/warpfeed"
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    text = head + BEGIN + "\n" + "\n".join(rows(ptxas, program)) + "\n\n" + END + tail
    if check:
        if text != page:
            raise SystemExit(f"{PAGE.relative_to(ROOT)} is out of date: run {sys.argv[0]} without --check")
    else:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3 or sys.argv[2:] not in ([], ["--check"]):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
