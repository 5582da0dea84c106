"""Creates the datasets of the examples: with the libraries of their formats, with `warpfeed pack`,
or as copies of fixtures."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Callable, Iterable

import numpy as np
from conftest import MINI, ROOT, need

FIXTURES = ROOT / "tests" / "fixtures" / "formats"
COUNT = 24
WRITERS: dict[str, Callable[[Path], None]] = {}


def writes(*names: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Registers the decorated function as the writer of the files or folders `names`."""

    def add(write: Callable[[Path], None]) -> Callable[[Path], None]:
        WRITERS.update(dict.fromkeys(names, write))
        return write

    return add


def program(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "warpfeed", *map(str, arguments)], check=True, capture_output=True)


def jpegs() -> list[tuple[bytes, int, str]]:
    """Returns the first six JPEGs of each class in `datasets/mini`, reduced by `smaller`, with
    their labels and names, class by class."""
    results = []
    for label, folder in enumerate(sorted(path for path in MINI.iterdir() if path.is_dir())):
        results += [(smaller(file), label, f"{folder.name}/{file.stem}") for file in sorted(folder.glob("*.jpg"))[:6]]
    return results


def smaller(jpeg: Path) -> bytes:
    """Returns the image with a quarter of the width and height, for fast decoding. Without Pillow,
    returns the original."""
    try:
        from PIL import Image
    except ImportError:
        return jpeg.read_bytes()
    out = io.BytesIO()
    with Image.open(jpeg) as image:
        image.reduce(4).save(out, "JPEG")
    return out.getvalue()


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@writes("datasets")
def mini(target: Path) -> None:
    shutil.copytree(MINI, target / "mini")
    for file in (target / "mini").rglob("*.jpg"):
        file.write_bytes(smaller(file))


@writes("train", "val", "photos", "photographs", "logos", "sketches")
def folder(target: Path) -> None:
    for content, _, name in jpegs():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / f"{name}.jpg").write_bytes(content)


@writes("imagenet")
def imagenet(target: Path) -> None:
    folder(target / "train")
    folder(target / "val")


@writes("kinetics")
def kinetics(target: Path) -> None:
    for name, video in (("archery/a", "g2"), ("archery/b", "frag"), ("bowling/c", "vfr"), ("bowling/d", "long")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "video" / "tests" / "fixtures" / f"{video}.mp4", target / f"{name}.mp4")


@writes("arm")
def arm(target: Path) -> None:
    shutil.copytree(FIXTURES / "lerobot" / "v30", target)


@writes("radiographs")
def radiographs(target: Path) -> None:
    image = need("PIL.Image")
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 1 << 16, (20, 24), np.uint16)
        (target / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels).save(target / "ab"[number % 2] / f"{number:02}.png")


@writes("classes.txt")
def classes(target: Path) -> None:
    target.write_text("".join(f"{name}\n" for name in sorted({name.partition("/")[0] for *_, name in jpegs()})))


@writes("train.tar", "photos.lmdb", "train-000.tar", "train-001.tar")
def packed(target: Path) -> None:
    folder(target.parent / f"folder of {target.name}")
    program("pack", target.parent / f"folder of {target.name}", target)


def tar_of(target: Path, samples: Iterable[dict[str, bytes]]) -> None:
    """Writes samples to a tar. The keys of each sample are the file extensions of its fields."""
    with tarfile.open(target, "w") as tar:
        for number, sample in enumerate(samples):
            for name, content in sample.items():
                member = tarfile.TarInfo(f"{number:06}.{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


@writes("train.lmdb")
def embeddings(target: Path) -> None:
    """Writes images with a vector and a number."""
    tar = target.parent / "tar of train.lmdb.tar"
    vectors = [np.random.default_rng(number).random(768, np.float32) for number in range(COUNT)]
    samples = zip(jpegs(), vectors, strict=True)
    tar_of(tar, ({"jpg": c, "cls": b"%d" % label, "emb.npy": npy(v), "weight.txt": b"0.5"} for (c, label, _), v in samples))
    program("pack", tar, target)


@writes("stereo.tar")
def stereo(target: Path) -> None:
    tar_of(target, ({"left.jpg": content, "right.jpg": content, "cls": b"1"} for content, *_ in jpegs()))


def size_of(jpeg: bytes) -> tuple[int, int]:
    with need("PIL.Image").open(io.BytesIO(jpeg)) as image:
        return image.height, image.width


@writes("driving.tar")
def driving(target: Path) -> None:
    def sample(content: bytes) -> dict[str, bytes]:
        depth = np.full(size_of(content), 7, np.float32)
        return {"jpg": content, "cls": b"1", "depth.npy": npy(depth), "flow.npy": npy(np.stack([depth, depth], 2))}

    tar_of(target, (sample(content) for content, *_ in jpegs()))


@writes("tiles")
def tiles(target: Path) -> None:
    """Writes TIFFs with four bands."""
    image = need("PIL.Image")
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 24, 4), np.uint8)
        (target / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels, "RGBA").save(target / "ab"[number % 2] / f"{number:02}.tiff")


@writes("voc.tar")
def voc_tar(target: Path) -> None:
    voc(target.parent / "VOC of the tar")
    program("pack", target.parent / "VOC of the tar" / "ImageSets" / "Segmentation" / "train.txt", target)


@writes("faces.tar")
def faces(target: Path) -> None:
    points = npy(np.arange(10, dtype=np.float32).reshape(5, 2))
    tar_of(target, ({"jpg": content, "cls": b"1", "landmarks.npy": points} for content, *_ in jpegs()))


@writes("captions.tar")
def captions(target: Path) -> None:
    tar_of(target, ({"jpg": content, "caption.txt": name.encode()} for content, _, name in jpegs()))


@writes("documents.tar")
def documents(target: Path) -> None:
    tar_of(target, ({"tokens.npy": npy(np.arange(20 * number % 300 + 1))} for number in range(COUNT)))


@writes("coco8")
def coco8(target: Path) -> None:
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (target / kind / split).mkdir(parents=True)
        for number, (content, label, _) in enumerate(jpegs()):
            (target / "images" / split / f"{number}.jpg").write_bytes(content)
            (target / "labels" / split / f"{number}.txt").write_text(f"{label} 0.5 0.5 0.6 0.5\n")
    (target / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [a, b, c, d]\n")


@writes("train.csv")
def table(target: Path) -> None:
    lines = ["image_id,label,species,age,width,height,tags"]
    for number, (_, label, _) in enumerate(jpegs()):
        tags = ["indoors", "indoors,outdoors", "sleeping"][number % 3]
        lines.append(f'{number:03},{label},{3 - label},{number / 4},{number},{2 * number},"{tags}"')
    target.write_text("\n".join(lines) + "\n")


@writes("images")
def images(target: Path) -> None:
    target.mkdir()
    for number, (content, _, _) in enumerate(jpegs()):
        (target / f"{number:03}.jpg").write_bytes(content)


@writes("coco")
def coco(out: Path) -> None:
    program("synth", "--out", out, "--layout", "coco", "--images", 30, "--side", 64, "--classes", 4, "--seed", 9)
    for split in ("train", "val"):
        (out / split).rename(out / f"{split}2017")
        (out / "annotations" / f"instances_{split}.json").rename(out / "annotations" / f"instances_{split}2017.json")


@writes("coco.tar")
def coco_tar(target: Path) -> None:
    coco(target.parent / "coco of the tar")
    program("pack", target.parent / "coco of the tar" / "annotations" / "instances_train2017.json", target)


@writes("VOC2012")
def voc(target: Path) -> None:
    program("synth", "--out", target, "--layout", "voc", "--images", 30, "--side", 64, "--classes", 4, "--seed", 9)


@writes("CamVid")
def camvid(target: Path) -> None:
    image = need("PIL.Image")
    for split in ("train", "trainannot"):
        (target / split).mkdir(parents=True)
    for number, (content, _, _) in enumerate(jpegs()):
        (target / "train" / f"{number:03}.jpg").write_bytes(content)
        width, height = image.open(io.BytesIO(content)).size
        values = np.random.default_rng(number).integers(0, 12, (height, width), np.uint8)
        image.fromarray(values).save(target / "trainannot" / f"{number:03}.png")


LENGTHS = [17, 300, 80]


@writes("texts.tar")
def texts(target: Path) -> None:
    rows = [np.random.default_rng(length).integers(0, 1000, length) for length in LENGTHS]
    samples = [{"tokens.npy": npy(row), "weight.txt": str(len(row)).encode()} for row in rows]
    try:
        import webdataset
    except ImportError:
        return tar_of(target, samples)
    with webdataset.TarWriter(str(target)) as sink:
        for number, sample in enumerate(samples):
            sink.write({"__key__": f"{number:06}", **sample})


@writes("mds")
def mds(target: Path) -> None:
    streaming = need("streaming")
    columns = {"image": "jpeg", "label": "int", "species": "int", "age": "float32"}
    with streaming.MDSWriter(columns=columns, out=str(target / "train"), size_limit=40_000) as out:
        for number, (content, label, _) in enumerate(jpegs()):
            out.write({"image": content, "label": label, "species": 3 - label, "age": np.float32(number / 4)})


@writes("chunks")
def chunks(target: Path) -> None:
    """Copies a LitData dataset of tuples."""
    shutil.copytree(FIXTURES / "litdata_zstd", target / "train")


@writes("corpus")
def corpus(target: Path) -> None:
    target.mkdir()
    tokens = np.random.default_rng(3).integers(0, 50257, 40 * 32 + 1).astype(np.uint16)
    tokens[::19] = 50256
    tokens.tofile(target / "part.bin")


@writes("digits")
def digits(target: Path) -> None:
    datasets = need("datasets")
    pixels = np.random.default_rng(5).integers(0, 256, (COUNT, 28 * 28)).tolist()
    datasets.Dataset.from_dict({"image": pixels, "label": [n % 10 for n in range(COUNT)]}).save_to_disk(str(target))


@writes("train.lance")
def lance(target: Path) -> None:
    library = need("lance")
    pyarrow = need("pyarrow")
    columns = {"image": [content for content, *_ in jpegs()], "label": [label for _, label, _ in jpegs()]}
    library.write_dataset(pyarrow.table(columns), str(target))
