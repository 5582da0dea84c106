"""Collects what `measure device` needs on a machine without Rust: two benchmarks, the Python wheel,
photographs, and enlarged photographs. With 250 photographs the bundle takes about 50 MB. Needs
Pillow and maturin."""

import json
import os
import shutil
import sys

from PIL import Image

from record import ROOT, commit, run


# Sizes of the enlarged photographs, in megapixels, and their JPEG quality.
MEGAPIXELS, QUALITY = (7, 12, 18, 24), 90


def make(options):
    out = options.out.resolve()
    shutil.rmtree(out / "photographs", ignore_errors=True)
    (out / "photographs").mkdir(parents=True)
    for wheel in out.glob("*.whl"):
        wheel.unlink()
    build_command = ["cargo", "bench", "--no-run", "--bench", "decode_gpu", "--bench", "decoder"]
    for line in run([*build_command, "--message-format=json"], cwd=ROOT).splitlines():
        artifact = json.loads(line)
        if artifact.get("executable") and artifact["target"]["kind"] == ["bench"]:
            path = out / artifact["target"]["name"]
            shutil.copy(artifact["executable"], path)
            run(["strip", path])
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    maturin = ["maturin"] if shutil.which("maturin") else [sys.executable, "-m", "maturin"]
    wheel = [*maturin, "build", "--release", "--quiet", "--out", out]
    run(wheel, cwd=ROOT / "python", env={**os.environ, "CARGO_TARGET_DIR": target})
    results = [p for p in sorted(options.photographs.rglob("*")) if p.suffix.lower() in (".jpeg", ".jpg")]
    if not results:
        sys.exit(f"no .jpg or .jpeg files in {options.photographs}")
    for photograph in results[: options.count]:
        shutil.copy(photograph, out / "photographs" / photograph.name)
    enlarge(results, out / "large")
    (out / "bundle.json").write_text(json.dumps({"commit": commit()}) + "\n")
    size = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
    print(f"{out}: {size / 2**20:.1f} MiB, {len(results[: options.count])} photographs")
    return 0


def enlarge(photographs, out):
    """Enlarges photographs, as a substitute for the large files of real datasets."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    for i, megapixels in enumerate(MEGAPIXELS):
        image = Image.open(photographs[i * len(photographs) // len(MEGAPIXELS)]).convert("RGB")
        scale = (megapixels * 1e6 / (image.width * image.height)) ** 0.5
        size = round(image.width * scale), round(image.height * scale)
        image.resize(size, Image.Resampling.BICUBIC).save(out / f"{megapixels:02d}.JPEG", quality=QUALITY)
