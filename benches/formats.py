#!/usr/bin/env python3
"""Compares the program with the Python library of each format, on the same pictures.

    python3 benches/formats.py target/release/warpfeed PICTURES              all formats, as a table in Markdown
    python3 benches/formats.py target/release/warpfeed PICTURES hdf5 mds     these formats only

PICTURES is a folder of class folders of JPEGs. Each format is written by its own library into a
temporary folder. Both sides shuffle, crop at random to 224 pixels, flip, and make batches of 64. The
library reads under torch's `DataLoader` with two worker processes, decodes with Pillow and augments
with torchvision; the program has two worker threads. An epoch comes before the measurement, so files
are warm. A format whose library is not installed is named and skipped.
"""

import argparse
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time

SIZE, BATCH, WORKERS = 224, 64, 2


class Indexed:
    """A data set whose reader opens the file in each worker."""

    def __init__(self, path, count, transform):
        self.path, self.count, self.transform, self.reader = str(path), count, transform, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.reader = self.reader or self.open()
        picture, label = self.read(index)
        return self.transform(picture), label


class H5(Indexed):
    def open(self):
        import h5py

        return h5py.File(self.path)

    def read(self, index):
        return self.reader["image"][index].tobytes(), int(self.reader["label"][index])


class Lmdb(Indexed):
    def open(self):
        import lmdb

        return lmdb.open(self.path, subdir=False, readonly=True, lock=False)

    def read(self, index):
        import pickle

        with self.reader.begin() as transaction:
            return pickle.loads(transaction.get(b"%08d" % index))


def folder(samples, path, transform):
    from torchvision.datasets import ImageFolder

    return ImageFolder(samples.root, transform), samples.root


def hdf5(samples, path, transform):
    import h5py
    import numpy as np

    with h5py.File(path / "x.h5", "w") as file:
        pictures = file.create_dataset("image", (len(samples),), h5py.vlen_dtype(np.uint8))
        for place, (picture, _) in enumerate(samples):
            pictures[place] = np.frombuffer(picture, np.uint8)
        file["label"] = [label for _, label in samples]
    return H5(path / "x.h5", len(samples), transform), path / "x.h5"


def lmdb(samples, path, transform):
    import pickle

    import lmdb

    with lmdb.open(str(path / "x.mdb"), subdir=False, map_size=1 << 40) as database, database.begin(write=True) as to:
        for place, sample in enumerate(samples):
            to.put(b"%08d" % place, pickle.dumps(sample))
    return Lmdb(path / "x.mdb", len(samples), transform), path / "x.mdb"


def made(samples):
    import datasets

    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = ({"image": {"bytes": picture, "path": None}, "label": label} for picture, label in samples)
    return datasets.Dataset.from_list(list(rows), features=features)


def transformed(rows, transform):
    def apply(batch):
        return {"image": [transform(picture) for picture in batch["image"]], "label": batch["label"]}

    return rows.with_transform(apply)


def arrow(samples, path, transform):
    import datasets

    made(samples).save_to_disk(path / "saved")
    return transformed(datasets.load_from_disk(path / "saved"), transform), path / "saved"


def parquet(samples, path, transform):
    import datasets

    file = str(path / "x.parquet")
    made(samples).to_parquet(file)
    # The library writes Arrow files of it first.
    rows = datasets.load_dataset("parquet", data_files=file, split="train", cache_dir=str(path / "cache"))
    return transformed(rows, transform), file


def mds(samples, path, transform):
    import streaming

    with streaming.MDSWriter(out=str(path / "mds"), columns={"image": "bytes", "label": "int"}) as writer:
        for picture, label in samples:
            writer.write({"image": picture, "label": label})

    class Set(streaming.StreamingDataset):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return transform(sample["image"]), sample["label"]

    return Set(local=str(path / "mds"), shuffle=True, batch_size=BATCH), path / "mds"


def tar(samples, path, transform):
    import webdataset

    # A shard for each worker at least.
    with webdataset.ShardWriter(str(path / "x-%06d.tar"), maxcount=max(1, len(samples) // 4), verbose=0) as writer:
        for place, (picture, label) in enumerate(samples):
            writer.write({"__key__": f"{place:08}", "jpg": picture, "cls": label})
    shards = sorted(map(str, path.glob("x-*.tar")))
    rows = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000).to_tuple("jpg", "cls")
    return rows.map_tuple(transform, int), path


FORMATS = {each.__name__: each for each in [folder, arrow, parquet, tar, mds, lmdb, hdf5]}


class Samples:
    """JPEGs of class folders, with the numbers of their classes."""

    def __init__(self, root):
        self.root = root
        classes = sorted(path for path in root.iterdir() if path.is_dir())
        self.files = [(file, label) for label, path in enumerate(classes) for file in sorted(path.iterdir()) if is_jpeg(file)]

    def __len__(self):
        return len(self.files)

    def __iter__(self):
        return ((file.read_bytes(), label) for file, label in self.files)


def is_jpeg(file):
    return file.suffix.lower() in {".jpg", ".jpeg"}


def augmentation():
    from PIL import Image
    from torchvision.transforms import v2

    steps = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor()])

    def transform(picture):
        if isinstance(picture, bytes):
            picture = Image.open(io.BytesIO(picture))
        return steps(picture.convert("RGB"))

    return transform


def of_library(rows, name, seconds):
    """Pictures per second of the format's library."""
    import torch

    loader = torch.utils.data.DataLoader
    # The others shuffle by themselves.
    shuffle = {} if name in ("mds", "tar") else {"shuffle": True}
    batches = loader(rows, batch_size=BATCH, num_workers=WORKERS, persistent_workers=True, **shuffle)
    for _ in batches:
        pass
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for batch in batches:
            count += len(batch["label"] if isinstance(batch, dict) else batch[1])
    return count / (time.perf_counter() - start)


def of_program(program, path, seconds):
    """Pictures per second of the program."""
    options = ["--batch-size", str(BATCH), "--workers", str(WORKERS), "--size", str(SIZE), "--layout", "nchw"]
    timing = ["--seconds", str(seconds), "--warmup", str(min(seconds, 2))]
    found = subprocess.run([program, "bench", str(path), "--json", *options, *timing], check=True, capture_output=True)
    return json.loads(found.stdout)["samples_per_second"]


def one(name, program, root, seconds, folder):
    """Both figures, in a process of its own."""
    samples = Samples(root)
    rows, path = FORMATS[name](samples, folder, augmentation())
    own = of_program(program, path, seconds)
    print(json.dumps([own, of_library(rows, name, seconds)]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path, help="the program warpfeed, built with --release")
    parser.add_argument("pictures", type=pathlib.Path, help="a folder of class folders of JPEGs")
    parser.add_argument("formats", nargs="*", help=f"some of {', '.join(FORMATS)}")
    parser.add_argument("--seconds", type=float, default=20, help="least duration of each measurement")
    parser.add_argument("--one", type=pathlib.Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = set(given.formats) - set(FORMATS)
    if unknown:
        parser.error(f"no such format: {', '.join(sorted(unknown))}; there are {', '.join(FORMATS)}")
    program, root = str(given.program.resolve()), given.pictures.resolve()
    if given.one:
        return one(given.formats[0], program, root, given.seconds, given.one)
    if not len(Samples(root)):
        parser.error(f"no JPEGs in the folders of {root}")
    print(f"{len(Samples(root))} pictures, {WORKERS} workers, pictures/s\n")
    print("| format | warpfeed | its library | ratio |\n|---|---|---|---|", flush=True)
    for name in given.formats or FORMATS:
        with tempfile.TemporaryDirectory() as temporary:
            command = [sys.executable, __file__, program, str(root), name, "--seconds", str(given.seconds), "--one", temporary]
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            cause = done.stderr.strip().splitlines()[-1:] or [f"ended with code {done.returncode}"]
            print(f"{name}: {cause[0]}", file=sys.stderr)
            continue
        own, library = json.loads(done.stdout.splitlines()[-1])
        print(f"| {name} | {own:,.0f} | {library:,.0f} | {own / library:.1f} |", flush=True)


if __name__ == "__main__":
    main()
