#!/usr/bin/env python3
"""Measures mixtures of 35 datasets, and the packing of documents, on the CPU.

    mixtures.py WORK [--photographs FOLDER] [--measure order images packing] [--peers warpfeed grain energon litdata]
                [--turns 3] [--cores 2] [--sweep 0 1 2 4] [--seconds 5] [--warmup 2] [--batch 64] [--samples 100]

Dataset n of 35 has the proportion 1 / n. The script creates the data in WORK, in the format of each library. The images
are the JPEGs in FOLDER, by default the 64 images of datasets/mini. Each measurement runs in a separate process, and the
libraries take turns. warpfeed has one worker per core. For the other libraries, the first turn tries each number of
workers in `--sweep`, and the best one is measured in all turns. Prints the median rate of each library, and the memory
of its processes at the end (the proportional set size, in which memory that processes share counts once).

order    8-byte samples in batches of 1,024. Grain computes only the indices, because it can return them without
         reading.
images   JPEGs, a random-resized crop to 224 pixels and a flip, in batches of 64. All libraries except
         warpfeed use torchvision's decoder and transforms.
packing  documents of 20 to 1,499 tokens, packed first-fit into rows of 2,048 tokens, in batches of 8 rows.
"""

import argparse
import io
import json
import pathlib
import random
import sys
import tarfile

import turns
from cpu import SIDE, measure

SETS, ROW, END = 35, 2048, 0
MEASURES = ["order", "images", "packing"]
SHARES = [1 / n for n in range(1, SETS + 1)]
JPEG = (".jpg", ".jpeg")
MINI = pathlib.Path(__file__).resolve().parents[2] / "datasets" / "mini"


def made(path, make):
    """Returns `path`, which `make` creates unless it exists."""
    if not path.exists():
        new = path.with_name(path.name + ".new")
        make(new)
        new.rename(path)
    return path


def samples(options, number, tiny):
    """Yields the label, and eight bytes or a JPEG."""
    photographs = [] if tiny else [p for p in sorted(options.photographs.rglob("*")) if p.suffix.lower() in JPEG]
    for n in range(options.samples * 100 if tiny else options.samples):
        yield n, n.to_bytes(8, "little") if tiny else photographs[(n + number) % len(photographs)].read_bytes()


def tars(options, tiny):
    """A folder with a tar for each dataset."""

    def write(folder):
        for number in range(SETS):
            (folder / f"{number:02}").mkdir(parents=True)
            with tarfile.open(folder / f"{number:02}" / "shard-000000.tar", "w") as tar:
                for n, data in samples(options, number, tiny):
                    for end, content in (("bin" if tiny else "jpg", data), ("cls", str(n).encode())):
                        entry = tarfile.TarInfo(f"{n:06}.{end}")
                        entry.size = len(content)
                        tar.addfile(entry, io.BytesIO(content))

    return made(options.work / f"tars-{tiny}-{options.samples}", write)


def transforms():
    """A function from a JPEG to an augmented image, with torchvision."""
    import torch
    import torchvision
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    change = v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()])

    def load(jpeg):
        data = torch.frombuffer(bytearray(jpeg), dtype=torch.uint8)
        return change(torchvision.io.decode_image(data, mode="RGB"))

    return load


class Decoded:
    """A function from a JPEG to an augmented image. Each worker process creates its own transforms."""

    load = None

    def __call__(self, sample):
        Decoded.load = Decoded.load or transforms()
        return Decoded.load(sample)


def warpfeed_order(options):
    import numpy
    import warpfeed

    def write(folder):
        folder.mkdir()
        for number in range(SETS):
            rows = [n for n, _ in samples(options, number, True)]
            numpy.savez(folder / f"{number}.npz", x=numpy.array(rows).reshape(-1, 1))

    folder = made(options.work / f"npz-{options.samples}", write)
    parts = [(folder / f"{number}.npz", share) for number, share in enumerate(SHARES)]
    loader = warpfeed.Loader(
        parts, fields={"x": warpfeed.NdArray("i64", [1])}, drop_field=["image", "label"], batch_size=1024, seed=1,
        num_workers=options.workers, output="numpy",
    )  # fmt: skip
    while True:
        for batch in loader:
            yield len(batch["x"])


def warpfeed_images(options):
    import warpfeed

    folder = tars(options, False)
    parts = [(folder / f"{number:02}" / "shard-000000.tar", share) for number, share in enumerate(SHARES)]
    loader = warpfeed.Loader(
        parts, augment=warpfeed.Augment.train(SIDE), batch_size=options.batch, seed=1, num_workers=options.workers,
        output="numpy",
    )  # fmt: skip
    while True:
        for _, labels in loader:
            yield len(labels)


def documents(count):
    """The tokens of each document."""
    import numpy

    rng = numpy.random.default_rng(1)
    lengths = rng.integers(20, 1500, count)
    return [numpy.append(rng.integers(1, 50_000, length - 1), END).astype(numpy.uint16) for length in lengths]


def warpfeed_packing(options):
    import numpy
    import warpfeed

    path = made(options.work / "documents.bin", lambda path: numpy.concatenate(documents(20_000)).tofile(path))
    data = warpfeed.PackedTokens(path, ROW, END, window_documents=1024)
    loader = warpfeed.Loader(data, batch_size=8, shuffle=True, seed=1, num_workers=options.workers, output="numpy")
    while True:
        for batch in loader:
            yield batch["tokens"].size


def grain_order(options):
    import grain

    def of(number):
        return grain.MapDataset.range(options.samples * 100).shuffle(seed=number).repeat()

    mixed = grain.MapDataset.mix([of(number) for number in range(SETS)], SHARES)
    place = 0
    while True:
        for index in range(place, place + 1024):
            mixed[index]
        place += 1024
        yield 1024


def grain_images(options):
    import grain
    from array_record.python import array_record_module

    def write(folder):
        folder.mkdir()
        for number in range(SETS):
            writer = array_record_module.ArrayRecordWriter(str(folder / f"{number}"), "group_size:1")
            for _, data in samples(options, number, False):
                writer.write(data)
            writer.close()

    folder = made(options.work / f"array-records-{options.samples}", write)
    load = Decoded()

    def of(number):
        source = grain.sources.ArrayRecordDataSource([str(folder / f"{number}")])
        return grain.MapDataset.source(source).shuffle(seed=number).repeat()

    mixed = grain.MapDataset.mix([of(number) for number in range(SETS)], SHARES)
    mixed = mixed.map(lambda jpeg: load(jpeg).numpy()).batch(options.batch)
    if options.processes:
        threads = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
        read = mixed.to_iter_dataset(threads).mp_prefetch(grain.MultiprocessingOptions(num_workers=options.workers))
    else:
        read = mixed.to_iter_dataset(grain.ReadOptions(num_threads=options.workers, prefetch_buffer_size=4))
    for batch in read:
        yield len(batch)


def grain_packing(options):
    import grain

    source = grain.MapDataset.source(documents(20_000)).shuffle(seed=1).repeat().map(lambda tokens: {"tokens": tokens})
    packed = grain.experimental.FirstFitPackIterDataset(
        source.to_iter_dataset(grain.ReadOptions(num_threads=0)), length_struct={"tokens": ROW}, num_packing_bins=64
    )
    rows = packed.batch(8)
    if options.processes:
        rows = rows.mp_prefetch(grain.MultiprocessingOptions(num_workers=options.workers))
    for batch in rows:
        yield batch["tokens"].size


def energon(options, tiny):
    import torch
    from megatron import energon as e
    from megatron.energon.tools.prepare import command as prepare

    folder = tars(options, tiny)
    for number in range(SETS):
        if not (folder / f"{number:02}" / ".nv-meta" / "dataset.yaml").exists():
            arguments = ["--non-interactive", "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset"]
            prepare.main([str(folder / f"{number:02}"), "--num-workers", "1", *arguments], standalone_mode=False)
    blend = [{"path": f"./{number:02}", "weight": share} for number, share in enumerate(SHARES)]
    text = {"__module__": "megatron.energon", "__class__": "MetadatasetV2", "splits": {"train": {"blend": blend}}}
    (folder / "blend.yaml").write_text(json.dumps(text))
    load = Decoded()

    @e.stateless
    def cook(sample):
        return {**e.basic_sample_keys(sample), "value": sample["bin"] if tiny else load(sample["jpg"])}

    class Encoder(e.DefaultTaskEncoder):
        decoder = None
        cookers = [e.Cooker(cook)]

        def batch(self, samples):
            values = [sample["value"] for sample in samples]
            return {"value": values if tiny else torch.stack(values)}

        def encode_batch(self, batch):
            return batch

    workers = e.WorkerConfig(rank=0, world_size=1, num_workers=options.workers)
    dataset = e.get_train_dataset(
        str(folder / "blend.yaml"), worker_config=workers, batch_size=1024 if tiny else options.batch,
        shuffle_buffer_size=options.samples, max_samples_per_sequence=100, task_encoder=Encoder(),
    )  # fmt: skip
    for batch in e.get_loader(dataset):
        yield len(batch["value"])


def energon_order(options):
    yield from energon(options, True)


def energon_images(options):
    yield from energon(options, False)


def litdata(options, tiny):
    import litdata
    from litdata.streaming.writer import BinaryWriter

    def write(folder):
        for number in range(SETS):
            writer = BinaryWriter(str(folder / f"{number}"), chunk_bytes="16MB")
            for n, (label, data) in enumerate(samples(options, number, tiny)):
                writer.add_item(n, label if tiny else data)
            writer.done()
            writer.merge()

    folder = made(options.work / f"litdata-{tiny}-{options.samples}", write)
    transform = None if tiny else Decoded()
    parts = [
        litdata.StreamingDataset(str(folder / f"{number}"), shuffle=True, seed=number, transform=transform)
        for number in range(SETS)
    ]
    mixed = litdata.CombinedStreamingDataset(parts, weights=SHARES, iterate_over_all=False)
    size = 1024 if tiny else options.batch
    loader = litdata.StreamingDataLoader(mixed, batch_size=size, num_workers=options.workers)
    while True:
        for batch in loader:
            yield len(batch)


def litdata_order(options):
    yield from litdata(options, True)


def litdata_images(options):
    yield from litdata(options, False)


# For each library: its functions, and the packages with printed versions.
PEERS = {
    "warpfeed": ({"order": warpfeed_order, "images": warpfeed_images, "packing": warpfeed_packing}, []),
    "grain": ({"order": grain_order, "images": grain_images, "packing": grain_packing}, ["grain", "array-record"]),
    "energon": ({"order": energon_order, "images": energon_images}, ["megatron-energon", "torchvision"]),
    "litdata": ({"order": litdata_order, "images": litdata_images}, ["litdata", "torchvision"]),
}


def settings(options, peer, what):
    if peer == "warpfeed":
        return [(f"--workers={options.cores}",)]
    workers = [f"--workers={number}" for number in options.sweep if number]
    processes = [(number, "--processes") for number in workers]
    match peer, what:
        case "grain", "order":
            return [()]
        case "grain", "packing":
            return [(), *processes]
        case "grain", "images":
            return [*((number,) for number in workers), *processes]
    return [(f"--workers={number}",) for number in options.sweep]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--photographs", type=pathlib.Path, default=MINI, help="folder of JPEGs")
    parser.add_argument("--measure", nargs="+", choices=MEASURES, default=MEASURES)
    turns.add_arguments(parser, PEERS, list(PEERS), seconds=5, warmup=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--samples", type=int, default=100, help="images per dataset (for `order`, 100 times as many)")
    parser.add_argument("--processes", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    random.seed(1)
    if options.one:
        peer, what = options.one
        if what not in PEERS[peer][0]:
            turns.unsupported("the library has no function for this")
        options.work /= options.photographs.name
        options.work.mkdir(parents=True, exist_ok=True)
        batches = PEERS[peer][0][what](options)
        return turns.finish(measure(batches, options))
    values = [f"--{name}={getattr(options, name)}" for name in ("photographs", "seconds", "warmup", "batch", "samples")]
    return turns.main(
        __file__, options, [options.work, *values], options.measure, PEERS, settings,
        lambda what: "tokens/s" if what == "packing" else "samples/s",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
