"""Writes the buckets of the benchmark: copies of photographs as class folders, tar shards, MDS, LitData
and Lance.

    python prepare.py PHOTOGRAPHS ROOT --copies 20
"""

from __future__ import annotations

import argparse
import io
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile

#: Size of a shard or chunk in bytes.
SHARD = 64_000_000


def photographs(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))


def folder(source: pathlib.Path, target: pathlib.Path, copies: int) -> None:
    for path in photographs(source):
        (target / path.parent.name).mkdir(parents=True, exist_ok=True)
        first = target / path.parent.name / f"{path.stem}_00.jpg"
        shutil.copyfile(path, first)
        for copy in range(1, copies):
            os.link(first, first.with_name(f"{path.stem}_{copy:02}.jpg"))


def shards(images: list[pathlib.Path], target: pathlib.Path, warpfeed: list[str]) -> None:
    """Writes tar shards of shuffled images with their classes, and opens them to write the indexes."""
    classes = {name: str(number) for number, name in enumerate(sorted({path.parent.name for path in images}))}
    shuffled = random.Random(2).sample(images, len(images))
    number, size, out = -1, SHARD, None
    for sample, path in enumerate(shuffled):
        if size >= SHARD:
            number, size = number + 1, 0
            if out is not None:
                out.close()
            out = tarfile.open(target / f"train-{number:06}.tar", "w", format=tarfile.USTAR_FORMAT)
        for name, data in [
            (f"{sample:06}.jpg", path.read_bytes()),
            (f"{sample:06}.cls", classes[path.parent.name].encode()),
        ]:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            out.addfile(entry, io.BytesIO(data))
            size += len(data)
    out.close()
    subprocess.run([*warpfeed, "inspect", str(target)], check=True, stdout=subprocess.DEVNULL)


def litdata_sample(path: str) -> dict[str, object]:
    return {"image": pathlib.Path(path).read_bytes(), "label": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=pathlib.Path)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--warpfeed", nargs="+", default=[sys.executable, "-m", "warpfeed"], help="warpfeed command")
    parser.add_argument("--only", nargs="*", default=["photos", "tar", "mds", "litdata", "lance"])
    options = parser.parse_args()
    files = options.root / "photos/train"
    if "photos" in options.only:
        folder(options.photographs, files, options.copies)
    images = photographs(files)
    if "tar" in options.only:
        (options.root / "tar/train").mkdir(parents=True)
        shards(images, options.root / "tar/train", options.warpfeed)
    if "mds" in options.only:
        from streaming import MDSWriter

        with MDSWriter(
            out=str(options.root / "mds/train"), columns={"image": "bytes", "label": "int"}, size_limit=SHARD
        ) as out:
            for path in images:
                out.write({"image": path.read_bytes(), "label": 0})
    if "litdata" in options.only:
        import litdata

        inputs = [str(path) for path in images]
        litdata.optimize(
            litdata_sample, inputs, output_dir=str(options.root / "litdata/train"), chunk_bytes=SHARD, num_workers=1
        )
    if "lance" in options.only:
        import lance
        import pyarrow as pa

        schema = pa.schema([pa.field("image", pa.large_binary())])
        # Shuffle the images: Lance would store runs of equal values only once.
        random.Random(1).shuffle(images)

        def batches():
            for offset in range(0, len(images), 500):
                column = pa.array([path.read_bytes() for path in images[offset : offset + 500]], pa.large_binary())
                yield pa.record_batch([column], schema=schema)

        (options.root / "lance").mkdir(parents=True, exist_ok=True)
        lance.write_dataset(
            pa.RecordBatchReader.from_batches(schema, batches()), str(options.root / "lance/train.lance")
        )


if __name__ == "__main__":
    main()
