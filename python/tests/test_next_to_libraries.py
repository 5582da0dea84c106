"""Compares the samples, labels and order of datasets with each format's own library, in order, and
then for 200 shuffled batches with one and with three workers. For the shuffled batches, the garbage
collector is disabled, so the test would fail if reference cycles held batches."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

import conftest
import numpy as np
import pytest
from conftest import batches_of, need
from documented import BATCHES, uncollected
from warpfeed import Augment, Boxes, Loader, NdArray

pil = need("PIL.Image")

COUNT, HEIGHT, WIDTH = 23, 24, 32


class Opened(NamedTuple):
    """A dataset, and the samples that the format's own library reads from it."""

    data: Any
    samples: list[dict[str, Any]]
    options: dict[str, Any] = {}


def pixels(number: int) -> np.ndarray:
    """Returns a smooth image with noise."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    base = np.stack([y * 7 + number, x * 5, x * y // 3 + number * 9], 2) % 256
    noise = np.random.default_rng(number).integers(0, 24, base.shape)
    return np.minimum(base + noise, 255).astype(np.uint8)


def encoded(number: int, kind: str = "JPEG") -> bytes:
    out = io.BytesIO()
    pil.fromarray(pixels(number)).save(out, kind)
    return out.getvalue()


def opened(content: bytes) -> np.ndarray:
    return np.asarray(pil.open(io.BytesIO(content)).convert("RGB"))


def label(number: int) -> int:
    return number * 5 % 7


def mosaicml(folder: Path) -> Opened:
    streaming = need("streaming")
    columns = {"image": "jpeg", "label": "int", "vector": "ndarray:float32:3"}
    with streaming.MDSWriter(columns=columns, out=str(folder), size_limit=6_000, compression="zstd:3") as out:
        for number in range(COUNT):
            vector = np.full(3, number / 4, np.float32)
            out.write({"image": pil.open(io.BytesIO(encoded(number))), "label": label(number), "vector": vector})
    copy = folder.parent / "as streaming reads it"
    rows = streaming.StreamingDataset(local=str(copy), remote=str(folder), shuffle=False, batch_size=1)
    samples = [
        {"image": np.asarray(row["image"].convert("RGB")), "label": row["label"], "vector": row["vector"]}
        for row in (rows[n] for n in range(COUNT))
    ]
    return Opened(folder, samples, {"fields": {"vector": NdArray("f32", [3])}})


def litdata(folder: Path) -> Opened:
    lit = need("litdata")
    from litdata.streaming.writer import BinaryWriter
    from litdata.types import Jpeg

    folder.mkdir()
    writer = BinaryWriter(str(folder), chunk_size=5)
    for number in range(COUNT):
        writer[number] = {"image": Jpeg(bytes=encoded(number)), "class": label(number), "score": number / 8}
    writer.done()
    writer.merge()
    rows = lit.StreamingDataset(str(folder), shuffle=False)
    samples = []
    for number in range(COUNT):
        row = rows[number]
        image = np.asarray(row["image"].permute(1, 2, 0) if hasattr(row["image"], "permute") else row["image"])
        samples.append({"image": image, "label": row["class"], "score": np.float32(row["score"])})
    return Opened(folder, samples, {"fields": {"score": NdArray("f32")}})


def webdataset(folder: Path) -> Opened:
    web = need("webdataset")
    folder.mkdir()
    with web.ShardWriter(str(folder / "part-%03d.tar"), maxcount=9, verbose=0) as sink:
        for number in range(COUNT):
            name = "png" if number % 3 else "jpg"
            content = encoded(number, {"png": "PNG", "jpg": "JPEG"}[name])
            sink.write(
                {
                    "__key__": f"{number:04}",
                    name: content,
                    "cls": label(number),
                    "emb.npy": np.full(4, number, np.float32),
                }
            )
    shards = [str(path) for path in sorted(folder.glob("*.tar"))]
    rows = web.WebDataset(shards, shardshuffle=False).decode("rgb8")
    samples = [
        {"image": row["jpg"] if "jpg" in row else row["png"], "label": row["cls"], "emb": row["emb.npy"]}
        for row in rows
    ]
    return Opened(folder, samples, {"fields": {"emb": NdArray("f32", [4])}})


def hugging_face(kind: str) -> Callable[[Path], Opened]:
    def write(folder: Path) -> Opened:
        datasets = need("datasets")
        names = [f"class {n}" for n in range(7)]
        features = datasets.Features(
            {"image": datasets.Image(), "label": datasets.ClassLabel(names=names), "age": datasets.Value("float32")}
        )
        columns = {
            "image": [{"bytes": encoded(n), "path": None} for n in range(COUNT)],
            "label": [label(n) for n in range(COUNT)], "age": [n / 4 for n in range(COUNT)],
        }  # fmt: skip
        rows = datasets.Dataset.from_dict(columns, features=features)
        if kind == "saved":
            rows.save_to_disk(str(folder), num_shards=3)
            rows, path = datasets.load_from_disk(str(folder)), folder
        else:
            folder.mkdir()
            path = folder / "rows.parquet"
            rows.to_parquet(str(path), batch_size=4)
            rows = datasets.Dataset.from_parquet(str(path), cache_dir=str(folder / "cache"))
        samples = [
            {"image": np.asarray(row["image"].convert("RGB")), "label": row["label"], "age": np.float32(row["age"])}
            for row in rows
        ]
        return Opened(path, samples, {"fields": {"age": NdArray("f32")}})

    write.__name__ = f"datasets_{kind}"
    return write


def pyarrow(folder: Path) -> Opened:
    arrow = need("pyarrow")

    table = arrow.table({"image": [encoded(n, "PNG") for n in range(COUNT)], "label": [label(n) for n in range(COUNT)]})
    folder.mkdir()
    arrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=5, compression="zstd")
    rows = arrow.parquet.read_table(folder / "rows.parquet").to_pylist()
    return Opened(folder / "rows.parquet", [{"image": opened(row["image"]), "label": row["label"]} for row in rows])


def torchvision(target: Path) -> Opened:
    need("torch")
    vision = need("torchvision")
    for number in range(COUNT):
        # Classes and files are sorted by code points, so the names include digits, capitals and a
        # non-ASCII character.
        folder = target / ["a", "B", "c10", "c2", "é", "z z", "_"][label(number)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(encoded(number, "PNG"))
    rows = vision.datasets.ImageFolder(str(target))
    return Opened(
        target, [{"image": np.asarray(image), "label": result} for image, result in rows], {"classes": rows.classes}
    )


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.stack([pixels(n) for n in range(COUNT)]), np.array([label(n) for n in range(COUNT)], np.int64)


def samples_of(images: Any, labels: Any) -> list[dict[str, Any]]:
    return [{"image": np.asarray(image), "label": int(one)} for image, one in zip(images, labels, strict=True)]


def numpy(folder: Path) -> Opened:
    images, labels = arrays()
    folder.mkdir()
    np.savez_compressed(folder / "set.npz", images=images, labels=labels)
    read = np.load(folder / "set.npz")
    return Opened(folder / "set.npz", samples_of(read["images"], read["labels"]))


def h5py(folder: Path) -> Opened:
    hdf = need("h5py")
    images, labels = arrays()
    folder.mkdir()
    with hdf.File(folder / "set.h5", "w") as file:
        file.create_dataset("images", data=images, chunks=(4, 24, 32, 3), compression="gzip", shuffle=True)
        file.create_dataset("labels", data=labels)
    with hdf.File(folder / "set.h5") as file:
        return Opened(folder / "set.h5", samples_of(file["images"][:], file["labels"][:]))


def safetensors(folder: Path) -> Opened:
    need("safetensors")
    from safetensors.numpy import load_file, save_file

    images, labels = arrays()
    folder.mkdir()
    save_file({"image": images, "label": labels}, folder / "set.safetensors")
    read = load_file(folder / "set.safetensors")
    return Opened(folder / "set.safetensors", samples_of(read["image"], read["label"]))


def pytorch(folder: Path) -> Opened:
    torch = need("torch")
    images, labels = map(torch.from_numpy, arrays())
    folder.mkdir()
    torch.save({"images": images, "labels": labels}, folder / "set.pt")
    read = torch.load(folder / "set.pt", weights_only=True)
    return Opened(folder / "set.pt", samples_of(read["images"], read["labels"]))


def lmdb(form: str) -> Callable[[Path], Opened]:
    def write(folder: Path) -> Opened:
        mdb = need("lmdb")
        folder.mkdir()
        env = mdb.open(str(folder / "set.mdb"), subdir=False, map_size=1 << 26)
        keys = [form.format(number * 37 % 101 if "3" in form else number).encode() for number in range(COUNT)]
        with env.begin(write=True) as txn:
            for number, key in enumerate(keys):
                txn.put(key, pickle.dumps((encoded(number), label(number))))
        with env.begin() as txn:
            # Existing programs read padded keys with a cursor, and look up unpadded keys by number.
            values = [value for _, value in txn.cursor()] if "3" in form else [txn.get(key) for key in keys]
        env.close()
        pairs = map(pickle.loads, values)
        return Opened(folder / "set.mdb", [{"image": opened(original), "label": result} for original, result in pairs])

    write.__name__ = f"lmdb_{'padded' if '3' in form else 'counted'}"
    return write


def tfrecord(folder: Path) -> Opened:
    records = need("tfrecord")
    folder.mkdir()
    for shard in range(2):
        writer = records.TFRecordWriter(str(folder / f"train-{shard:05}-of-00002"))
        for number in range(shard * 12, min(shard * 12 + 12, COUNT)):
            writer.write(
                {
                    "image/encoded": (encoded(number), "byte"),
                    "image/class/label": (label(number), "int"),
                    "age": (number / 4, "float"),
                }
            )
        writer.close()
    description = {"image/encoded": "byte", "image/class/label": "int", "age": "float"}
    rows = [row for path in sorted(folder.iterdir()) for row in records.tfrecord_loader(str(path), None, description)]
    samples = [
        {
            "image": opened(bytes(row["image/encoded"])),
            "label": int(row["image/class/label"][0]),
            "age": np.float32(row["age"][0]),
        }
        for row in rows
    ]
    return Opened(folder, samples, {"fields": {"age": NdArray("f32")}})


def coco(folder: Path) -> Opened:
    need("pycocotools")
    from pycocotools import mask as masks
    from pycocotools.coco import COCO

    (folder / "annotations").mkdir(parents=True)
    (folder / "train2017").mkdir()
    document: dict[str, Any] = {
        "images": [],
        "annotations": [],
        "categories": [{"id": id, "name": f"c{id}"} for id in (9, 3, 44)],
    }
    for number in range(COUNT):
        rng, id = np.random.default_rng(number), 100 - number * 3
        (folder / "train2017" / f"{id}.jpg").write_bytes(encoded(number))
        document["images"].append({"id": id, "file_name": f"{id}.jpg", "height": HEIGHT, "width": WIDTH})
        for _ in range(number % 4):
            left, top = rng.uniform(0, WIDTH - 9), rng.uniform(0, HEIGHT - 9)
            width, height = rng.uniform(3, 8, 2)
            polygon = [left, top, left + width, top + 1, left + width - 1, top + height, left, top + height - 1]
            annotation = {
                "id": len(document["annotations"]) + 1, "image_id": id, "category_id": [9, 3, 44][rng.integers(3)],
                "bbox": [left, top, width, height], "area": width * height, "iscrowd": 0, "segmentation": [polygon],
            }  # fmt: skip
            if rng.random() < 0.4:
                drawn = np.zeros((HEIGHT, WIDTH), np.uint8, order="F")
                drawn[int(top) : int(top + height), int(left) : int(left + width)] = (
                    rng.random((int(top + height) - int(top), int(left + width) - int(left))) < 0.7
                )
                packed = masks.encode(drawn)
                annotation["segmentation"] = {"size": packed["size"], "counts": packed["counts"].decode()}
            document["annotations"].append(annotation)
    path = folder / "annotations" / "instances_train2017.json"
    path.write_text(json.dumps(document))
    with conftest.silent():
        rows = COCO(str(path))
    category = sorted(rows.getCatIds())
    samples, no_masks = [], np.zeros((0, HEIGHT, WIDTH), np.uint8)
    for id in sorted(rows.getImgIds()):
        objects = rows.loadAnns(rows.getAnnIds(imgIds=id))
        boxes = np.array([one["bbox"] for one in objects], np.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        samples.append({
            "image": opened((folder / "train2017" / rows.loadImgs(id)[0]["file_name"]).read_bytes()), "boxes": boxes,
            "boxes.class": np.array([category.index(one["category_id"]) for one in objects], np.int64),
            "boxes.masks": np.stack([rows.annToMask(one) for one in objects]) if objects else no_masks,
        })  # fmt: skip
    return Opened(
        path, samples, {"fields": {"boxes": Boxes(4, columns={"class": "i64"}, masks=True)}, "drop_field": ["label"]}
    )


FORMATS = [
    mosaicml, litdata, webdataset, hugging_face("saved"), hugging_face("parquet"), pyarrow, torchvision, numpy, h5py, safetensors,
    pytorch, lmdb("{:03}"), lmdb("{}"), tfrecord, coco,
]  # fmt: skip


def check(batch: Any, samples: list[dict[str, Any]]) -> None:
    fields = batch if isinstance(batch, dict) else dict(zip(("image", "label"), batch, strict=True))
    for position, id in enumerate(batch.ids):
        for name, expected in samples[id].items():
            actual = np.asarray(fields[name][position])
            if name.startswith("boxes"):
                count = int(fields["boxes.count"][position])
                assert count == len(samples[id]["boxes"]), f"sample {id}: {count} boxes"
                actual = actual[:count]
            close = name == "boxes"
            same = np.allclose(actual, expected, atol=1e-4) if close else np.array_equal(actual, expected)
            assert same, f"{name} of sample {id}: {actual} instead of {expected}"


COVERED: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def covered() -> Iterator[None]:
    yield
    conftest.tell(f"formats compared with their own libraries: {', '.join(COVERED) or 'none is installed'}")


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_batches_match_the_library_of_the_format(write: Callable[[Path], Opened], tmp_path: Path) -> None:
    data, samples, options = write(tmp_path / write.__name__)
    assert len(samples) == COUNT
    options = {
        "batch_size": 3,
        "augment": Augment.pass_through((HEIGHT, WIDTH)),
        "output": "numpy",
        "held_batches_timeout": 20,
        **options,
    }
    with Loader(data, num_workers=1, **options) as loader:
        ids = []
        for batch in loader:
            check(batch, samples)
            ids += batch.ids
        assert ids == list(range(COUNT)), "the order differs from the library's order"
    for workers in (1, 3):
        with uncollected(), Loader(data, num_workers=workers, shuffle=True, seed=7, **options) as loader:
            seen = set()
            for batch in batches_of(loader, BATCHES):
                check(batch, samples)
                seen.update(batch.ids)
            assert seen == set(range(COUNT))
    COVERED.append(write.__name__)


def test_a_wrong_label_and_a_wrong_order_are_found(tmp_path: Path) -> None:
    data, samples, options = numpy(tmp_path / "numpy")
    with Loader(data, batch_size=3, augment=Augment.pass_through((HEIGHT, WIDTH)), output="numpy", **options) as loader:
        batch = next(iter(loader))
        check(batch, samples)
        for position, name, other in [(1, "label", 6), (2, "image", samples[3]["image"])]:
            invalid = [dict(sample) for sample in samples]
            invalid[position][name] = other
            with pytest.raises(AssertionError, match=f"{name} of sample {position}"):
                check(batch, invalid)
