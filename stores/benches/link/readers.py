"""Reads one dataset with one library, and prints the arrival time of each batch.

warpfeed decodes every photograph, crops it to 224 pixels and returns batches. The other libraries read
the encoded bytes in worker processes (pylance: in threads), and return only the number of samples, so
that they lose no time in decoding or in copies between processes.

    python readers.py NAME --server http://10.77.0.2:9000 --root ROOT --work FOLDER --seconds 12
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import random
import time
from collections.abc import Callable, Iterator

BATCH = 64

Batches = Iterator[int]
Reader = Callable[["Options"], Callable[[], Batches]]


class Options(argparse.Namespace):
    name: str
    server: str
    work: pathlib.Path
    seconds: float
    workers: int
    batch: int
    resume: int
    epochs: int
    root: pathlib.Path


# warpfeed


def warpfeed(url: str, cached: float = 0, **extra: object) -> Reader:
    """Returns a reader. `cached` is the size of its cache as a fraction of the dataset, or 0 for no cache."""

    def reader(options: Options) -> Callable[[], Batches]:
        import warpfeed

        bucket, _, name = url.partition("://")[2].partition("/")
        last = len(list((options.root / "tar/train").glob("*.tar"))) - 1
        dataset_url = url.replace("SERVER", options.server).replace("LAST", f"{last:06}")
        size = sum(path.stat().st_size for path in (options.root / bucket / name).rglob("*") if path.is_file())
        cache = {"cache_dir": options.work / "cache", "cache_bytes": int(cached * size)} if cached else {}
        augment = warpfeed.Augment.train(224)
        arguments = dict(
            batch_size=options.batch,
            shuffle=True, seed=42,
            augment=augment,
            output="numpy",
            epochs=options.epochs,
            **cache,
            **extra,
        )
        state = None
        if options.resume:
            with warpfeed.Loader(dataset_url, **arguments) as loader:
                batches = iter(loader)
                for _ in range(options.resume):
                    next(batches)
                state = loader.state_dict()

        opened: list[warpfeed.Loader] = []

        def epoch() -> Batches:
            if not opened:
                opened.append(warpfeed.Loader(dataset_url, **arguments, resume=state))
            for batch in opened[0]:
                yield len(batch.labels)

        def network() -> dict[str, object]:
            return dict(opened[0].stats()["network"] or {})

        epoch.network = network  # type: ignore[attr-defined]
        return epoch

    return reader


# Other libraries


def torch_loader(dataset: object, options: Options, **extra: object) -> Callable[[], Batches]:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        dataset,  # type: ignore[arg-type]
        batch_size=options.batch,
        num_workers=options.workers,
        collate_fn=len,
        persistent_workers=options.workers > 0,
        **extra,  # type: ignore[arg-type]
    )
    return lambda: iter(loader)


def allow_http() -> None:
    """Patches LitData so that it accepts servers without TLS. LitData has no option for this."""
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS = {**(downloader._OBSTORE_CLIENT_OPTIONS or {}), "allow_http": True}


def litdata(options: Options) -> Callable[[], Batches]:
    from litdata import StreamingDataLoader, StreamingDataset

    allow_http()
    dataset = StreamingDataset(
        "s3://litdata/train",
        cache_dir=str(options.work / "litdata"),
        shuffle=True,
        storage_options={"endpoint_url": options.server},
        max_pre_download=8,
    )
    loader = StreamingDataLoader(dataset, batch_size=options.batch, num_workers=options.workers, collate_fn=len)
    return lambda: iter(loader)


def litdata_raw(options: Options) -> Callable[[], Batches]:
    from litdata import StreamingRawDataset

    allow_http()
    dataset = StreamingRawDataset(
        "s3://photos/train/",
        cache_dir=str(options.work / "litraw"),
        storage_options={"endpoint_url": options.server},
        max_prefetch=64,
    )
    return torch_loader(dataset, options, shuffle=True, prefetch_factor=4)


def mosaicml(options: Options) -> Callable[[], Batches]:
    os.environ["S3_ENDPOINT_URL"] = options.server
    from streaming import StreamingDataset

    dataset = StreamingDataset(
        remote="s3://mds/train",
        local=str(options.work / "mds"),
        shuffle=True,
        batch_size=options.batch,
        predownload=16 * options.batch,
    )
    return torch_loader(dataset, options)


def webdataset(options: Options) -> Callable[[], Batches]:
    import webdataset as wds

    last = len(list((options.root / "tar/train").glob("*.tar"))) - 1
    urls = f"pipe:curl -s {options.server}/tar/train/train-{{000000..{last:06}}}.tar"
    dataset = wds.WebDataset(urls, shardshuffle=100).shuffle(1000).batched(options.batch, collation_fn=len)
    from torch.utils.data import DataLoader

    workers = min(options.workers, last + 1)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=True)
    return lambda: iter(loader)


def s3torchconnector(options: Options) -> Callable[[], Batches]:
    from s3torchconnector import S3ClientConfig, S3MapDataset

    dataset = S3MapDataset.from_prefix(
        "s3://photos/train/",
        region="us-east-1",
        endpoint=options.server,
        transform=lambda reader: reader.read(),
        s3client_config=S3ClientConfig(force_path_style=True),
    )
    return torch_loader(dataset, options, shuffle=True, prefetch_factor=4)


def pylance(options: Options) -> Callable[[], Batches]:
    import concurrent.futures

    import lance

    storage = {
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "aws_region": "us-east-1",
        "aws_endpoint": options.server,
        "allow_http": "true",
    }
    dataset = lance.dataset("s3://lance/train.lance", storage_options=storage)

    def epoch() -> Batches:
        order = list(range(dataset.count_rows()))
        random.Random(42).shuffle(order)
        groups = [order[offset : offset + options.batch] for offset in range(0, len(order), options.batch)]
        # `take` releases the GIL, and threads may share the dataset.
        with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
            for table in pool.map(lambda group: dataset.take(group, columns=["image"]), groups):
                yield table.num_rows

    return epoch


MODULES = {
    "warpfeed": ["warpfeed", "numpy"],
    "litdata": ["litdata", "torch.utils.data"],
    "mosaicml-streaming": ["streaming", "torch.utils.data"],
    "webdataset": ["webdataset", "torch.utils.data"],
    "s3torchconnector": ["s3torchconnector", "torch.utils.data"],
    "pylance": ["lance"],
}

#: Libraries that cache all samples or some of them, so that later epochs use the link less.
CACHING = ("warpfeed, MDS", "warpfeed, LitData", "warpfeed, a third cached", "litdata", "mosaicml-streaming")

READERS: dict[str, Reader] = {
    "warpfeed, tar shards": warpfeed("s3://tar/train"),
    "warpfeed, tar shards over HTTP": warpfeed("SERVER/tar/train/train-{000000..LAST}.tar"),
    "warpfeed, shuffle_window": warpfeed("s3://tar/train", shuffle_window=1024),
    "warpfeed, folder": warpfeed("s3://photos/train"),
    "warpfeed, a third cached": warpfeed("s3://tar/train", cached=1 / 3),
    "warpfeed, MDS": warpfeed("s3://mds/train", cached=2),
    "warpfeed, LitData": warpfeed("s3://litdata/train", cached=2),
    "litdata, chunks": litdata,
    "litdata, raw": litdata_raw,
    "mosaicml-streaming": mosaicml,
    "webdataset": webdataset,
    "s3torchconnector": s3torchconnector,
    "pylance": pylance,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=READERS)
    parser.add_argument("--server", required=True)
    parser.add_argument(
        "--root", type=pathlib.Path, required=True, help="folder of the buckets, to count shards and bytes"
    )
    parser.add_argument("--work", type=pathlib.Path, required=True, help="empty folder for the libraries' caches")
    parser.add_argument("--seconds", type=float, default=12, help="seconds after which reading stops")
    parser.add_argument(
        "--workers", type=int, default=8, help="processes, or threads for pylance; warpfeed chooses the number itself"
    )
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument(
        "--resume", type=int, default=0, help="batches after which warpfeed is reopened; ignored by other libraries"
    )
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args(namespace=Options())
    # The requests stay inside the namespace, and the server accepts any key.
    os.environ.update(
        AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1",
        AWS_ENDPOINT_URL=options.server, AWS_EC2_METADATA_DISABLED="true", NO_PROXY="*", no_proxy="*",
    )  # fmt: skip
    name = options.name
    reader = READERS[name]
    # Imports are not timed.
    for module in MODULES[name.split(",")[0]]:
        importlib.import_module(module)
    if "warpfeed" not in name:
        start_time = time.time()
        epoch = reader(options)
    else:
        epoch = reader(options)
        start_time = time.time()
    arrivals: list[list[tuple[float, int]]] = []
    network: list[dict[str, object]] = []
    while not arrivals or (len(arrivals) < options.epochs and time.time() - start_time <= options.seconds):
        arrivals.append([])
        for samples in epoch():
            arrivals[-1].append((time.time() - start_time, samples))
            if time.time() - start_time > options.seconds:
                break
        network.append(getattr(epoch, "network", dict)())
    print(
        json.dumps(
            {"name": name, "begun": start_time, "ended": time.time(), "came": arrivals, "network": network}, default=str
        ),
        flush=True,
    )
    # Some libraries have threads that never end.
    os._exit(0)


if __name__ == "__main__":
    main()
