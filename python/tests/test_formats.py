"""Compares datasets of other libraries, bit for bit, with a folder of the same images: shuffled, on
two ranks, within windows, and resumed in the middle of an epoch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MINI, ROOT, Content, contents, need
from warpfeed import Augment, Loader

FIXTURES = ROOT / "tests" / "fixtures" / "formats"
OPTIONS = {"batch_size": 5, "augment": Augment.train(32), "output": "numpy"}

#: Datasets of the first three JPEGs of each class of `datasets/mini`, by format.
ENCODED = {
    "arrow": ["arrow/saved"],
    "beton": ["beton/train.beton"],
    "hdf5": ["hdf5/encoded-v114.h5", "hdf5/texts.h5"],
    "litdata": ["litdata"],
    "lmdb": ["lmdb/tuples.mdb", "lmdb/dicts.mdb", "lmdb/datums.mdb", "lmdb/pairs.mdb"],
    "mds": ["mds", "mds_zstd"],
    "parquet": ["parquet/hub/train"],
    "recordio": ["recordio/train.rec"],
    "tfrecord": ["tfrecord"],
}
#: Datasets of the same images as pixel arrays.
ARRAYS = {
    "hdf5": ["hdf5/gzip-earliest.h5", "hdf5/growing-v114.h5", "hdf5/split.h5/train"],
    "npy": ["arrays/npy"],
    "npz": ["arrays/stored.npz", "arrays/splits.npz/train"],
    "safetensors": ["arrays/a.safetensors"],
    "torch": ["arrays/tuple.pt", "arrays/dict.pth"],
}


def sets(*formats: dict[str, list[str]]) -> list[Any]:
    return [pytest.param(kind, path, id=path) for sets in formats for kind, paths in sets.items() for path in paths]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies the datasets, because some formats write files next to them."""
    target = tmp_path_factory.mktemp("formats")
    for paths in [*ENCODED.values(), *ARRAYS.values()]:
        for name in {Path(path).parts[0] for path in paths}:
            shutil.copytree(FIXTURES / name, target / name, dirs_exist_ok=True)
    return target


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("folder")
    for originals in sorted(path for path in MINI.iterdir() if path.is_dir()):
        (target / originals.name).mkdir()
        for jpeg in sorted(originals.glob("*.jpg"))[:3]:
            shutil.copy(jpeg, target / originals.name)
    return target


def run(path: Any) -> dict[str, list[Content]]:
    """Returns the batches for each way of loading a dataset."""

    def resumed() -> list[Content]:
        loader = Loader(path, shuffle=True, seed=7, **OPTIONS)
        batches = iter(loader)
        next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        return contents(Loader(path, shuffle=True, seed=7, resume=state, **OPTIONS), epochs=2)

    return {
        "in order": contents(Loader(path, **OPTIONS)),
        "shuffled": contents(Loader(path, shuffle=True, seed=7, **OPTIONS), epochs=2),
        "rank 0": contents(Loader(path, shuffle=True, seed=7, rank=0, world_size=2, **OPTIONS), epochs=2),
        "rank 1": contents(Loader(path, shuffle=True, seed=7, rank=1, world_size=2, **OPTIONS), epochs=2),
        "windows": contents(Loader(path, shuffle_window=6, seed=3, **OPTIONS), epochs=2),
        "resumed": resumed(),
    }


@pytest.fixture(scope="module")
def of_folder(folder: Path) -> dict[str, list[Content]]:
    return run(folder)


@pytest.fixture(scope="module")
def of_arrays(here: Path) -> dict[str, list[Content]]:
    """Returns the expected batches for the arrays, from a folder with the same images as PNG
    files."""
    target = here / "pngs"
    PIL = need("PIL.Image")
    images, labels = (np.load(here / "arrays" / "npy" / f"{name}.npy") for name in ["images", "labels"])
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        (target / str(label)).mkdir(parents=True, exist_ok=True)
        PIL.fromarray(image).save(target / str(label) / f"{index:02}.png")
    return run(target)


def agrees(path: Any, expected: dict[str, list[Content]]) -> None:
    actual = run(path)
    for way, batches in expected.items():
        assert len(batches) > 1 and actual[way] == batches, way


@pytest.mark.parametrize(("kind", "path"), sets(ENCODED))
def test_encoded_images_give_the_batches_of_the_folder(here: Path, of_folder: Any, kind: str, path: str) -> None:
    agrees(here / path, of_folder)


@pytest.mark.parametrize(("kind", "path"), sets(ARRAYS))
def test_arrays_of_pixels_give_the_batches_of_png_files(here: Path, of_arrays: Any, kind: str, path: str) -> None:
    agrees(here / path, of_arrays)


@pytest.mark.parametrize(("kind", "path"), sets(ENCODED, ARRAYS))
def test_the_program_of_the_package_names_the_format(here: Path, kind: str, path: str) -> None:
    program = [sys.executable, "-m", "warpfeed", "inspect", "--json", str(here / path)]
    result = json.loads(subprocess.run(program, check=True, capture_output=True).stdout)
    assert (result["source"], result["samples"], result["unreadable"]) == (kind, 12, 0)
    assert result["labels"] == {"0": 3, "1": 3, "2": 3, "3": 3}


def test_rows_of_lance_give_the_batches_of_the_folder(tmp_path: Path, folder: Path, of_folder: Any) -> None:
    """The recipe from docs/data-columns.md."""
    lance = need("lance")
    pyarrow = need("pyarrow")
    files = sorted(folder.rglob("*.jpg"))
    classes = sorted({file.parent.name for file in files})
    columns = {
        "image": [file.read_bytes() for file in files],
        "label": [classes.index(file.parent.name) for file in files],
    }
    lance.write_dataset(pyarrow.table(columns), str(tmp_path / "x.lance"))

    class Rows:
        def __init__(self, path: Path) -> None:
            self.rows = lance.dataset(str(path))

        def __len__(self) -> int:
            return int(self.rows.count_rows())

        def __getitem__(self, index: int) -> tuple[bytes, int]:
            row = self.rows.take([index], columns=["image", "label"])
            return row["image"][0].as_py(), row["label"][0].as_py()

    agrees(Rows(tmp_path / "x.lance"), of_folder)
