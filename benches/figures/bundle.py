"""Collects the files for `measure device` on a machine without Rust: two benchmarks, the Python
wheel and photographs. With 250 photographs the bundle takes about 45 MB."""

import json
import os
import shutil
import sys

from record import ROOT, commit, run


def make(options):
    out = options.out.resolve()
    shutil.rmtree(out / "photographs", ignore_errors=True)
    (out / "photographs").mkdir(parents=True)
    for wheel in out.glob("*.whl"):
        wheel.unlink()
    build = ["cargo", "bench", "--no-run", "--bench", "decode_gpu", "--bench", "decoder"]
    for line in run([*build, "--message-format=json"], cwd=ROOT).splitlines():
        built = json.loads(line)
        if built.get("executable") and built["target"]["kind"] == ["bench"]:
            to = out / built["target"]["name"]
            shutil.copy(built["executable"], to)
            run(["strip", to])
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    wheel = [sys.executable, "-m", "maturin", "build", "--release", "--quiet", "--out", out]
    run(wheel, cwd=ROOT / "python", env={**os.environ, "CARGO_TARGET_DIR": target})
    found = [p for p in sorted(options.photographs.rglob("*")) if p.suffix.lower() in (".jpeg", ".jpg")]
    for photograph in found[: options.count]:
        shutil.copy(photograph, out / "photographs" / photograph.name)
    (out / "bundle.json").write_text(json.dumps({"commit": commit()}) + "\n")
    size = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
    print(f"{out}: {size / 2**20:.1f} MiB, {len(found[: options.count])} photographs")
    return 0
