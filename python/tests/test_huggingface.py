"""Compares datasets written by Hugging Face's library with the samples that the library returns."""

import io

import numpy as np
import pytest
from conftest import need

import warpfeed

datasets = need("datasets")
PIL = need("PIL.Image")


def original(row):
    image = PIL.fromarray(np.random.default_rng(row).integers(0, 256, (24, 24, 3), dtype=np.uint8))
    encoded = io.BytesIO()
    image.save(encoded, "PNG")
    return encoded.getvalue()


@pytest.fixture
def rows():
    features = datasets.Features({
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "age": datasets.Value("float32"),
        "vector": datasets.Sequence(datasets.Value("int64")),
    })  # fmt: skip
    return datasets.Dataset.from_dict(
        {
            "image": [{"bytes": original(row), "path": None} for row in range(10)],
            "label": [row % 2 for row in range(10)],
            "age": [row / 4 for row in range(10)],
            "vector": [[row, -row] for row in range(10)],
        },
        features=features,
    )


def test_saved_and_parquet_files_have_the_rows(rows, tmp_path):
    rows.save_to_disk(tmp_path / "saved", num_shards=3)
    rows.to_parquet(tmp_path / "rows.parquet", batch_size=4)
    datasets.DatasetDict(train=rows, test=rows.select([0])).save_to_disk(tmp_path / "splits")
    fields = {"age": warpfeed.NdArray("f32", []), "vector": warpfeed.NdArray("i64", [2])}
    for path in ["saved", "rows.parquet", "splits/train"]:
        loader = warpfeed.Loader(
            tmp_path / path, batch_size=4, augment=warpfeed.Augment.eval(24, 24), fields=fields, output="numpy"
        )
        assert loader.classes == ["cat", "dog"], path
        row = 0
        for batch in loader:
            for position in range(len(batch["label"])):
                expected = rows[row]
                assert batch["label"][position] == expected["label"], path
                assert batch["age"][position] == expected["age"], path
                assert list(batch["vector"][position]) == expected["vector"], path
                row += 1
        assert row == 10, path
    with pytest.raises(warpfeed.ConfigError, match="found the splits train, test"):
        warpfeed.Loader(tmp_path / "splits", batch_size=2, augment=warpfeed.Augment.eval(24, 24))


def test_boxes_in_nested_columns_are_rows(tmp_path):
    def objects(row):
        boxes = [[row, corner, 2.5, 7.25] for corner in range(row % 4)]
        return {"bbox": boxes, "category": [len(box) + row for box in boxes]}

    features = datasets.Features({
        "image": datasets.Image(),
        "objects": {
            "bbox": datasets.Sequence(datasets.Sequence(datasets.Value("float32"), length=4)),
            "category": datasets.Sequence(datasets.Value("int64")),
        },
    })  # fmt: skip
    rows = datasets.Dataset.from_list(
        [{"image": {"bytes": original(row), "path": None}, "objects": objects(row)} for row in range(9)], features=features
    )
    rows.save_to_disk(tmp_path / "saved")
    rows.to_parquet(tmp_path / "rows.parquet")
    boxes, categories = warpfeed.Ragged("f32", [4], max_rows=3), warpfeed.Ragged("i64", max_rows=3)
    fields = {"objects.bbox": boxes, "objects.category": categories}
    for path in ["saved", "rows.parquet"]:
        loader = warpfeed.Loader(
            tmp_path / path, batch_size=4, augment=warpfeed.Augment.eval(24, 24), fields=fields, output="numpy"
        )
        row = 0
        for batch in loader:
            for position, count in enumerate(batch["objects.bbox.count"]):
                expected = objects(row)
                assert batch["objects.bbox"][position][:count].tolist() == expected["bbox"], (path, row)
                assert batch["objects.category"][position][: len(expected["bbox"])].tolist() == expected["category"]
                row += 1
        assert row == 9, path


@pytest.mark.parametrize("kind", ["Array2D", "Array3D", "list", "list of fixed length"])
def test_pixel_lists_are_fields_until_a_transform(kind, tmp_path):
    """The recipe from docs/data-columns.md."""
    number, side = datasets.Value("uint8"), 28
    feature, name = {
        "Array2D": (datasets.Array2D((side, side), "uint8"), "image.json"),
        "Array3D": (datasets.Array3D((side, side, 1), "uint8"), "image.json"),
        "list": (datasets.Sequence(number), "image.npy"),
        "list of fixed length": (datasets.Sequence(number, length=side * side), "image.npy"),
    }[kind]
    stored = np.random.default_rng(1).integers(0, 256, (10, side, side), dtype=np.uint8)
    shape = {"Array2D": (side, side), "Array3D": (side, side, 1)}.get(kind, (side * side,))
    # Some labels do not fit in 8 bits.
    columns = {"image": [image.reshape(shape) for image in stored], "label": list(range(300, 310))}
    features = datasets.Features(image=feature, label=datasets.Value("int64"))
    rows = datasets.Dataset.from_dict(columns, features=features)
    rows.save_to_disk(tmp_path / "saved")
    rows.to_parquet(tmp_path / "rows.parquet")
    options = {"batch_size": 5, "augment": warpfeed.Augment.pass_through(side), "output": "numpy"}

    def pixels(rows):
        rows["image"] = [np.array(image, np.uint8).reshape(side, side) for image in rows["image"]]
        return rows

    def agrees(loader):
        results = [(image, label) for batch in loader for image, label in zip(batch.images, batch.labels, strict=True)]
        assert [label for _, label in results] == columns["label"]
        assert all((image == pixels[..., None]).all() for (image, _), pixels in zip(results, stored, strict=True))

    for path in ["saved", "rows.parquet"]:
        with pytest.raises(warpfeed.WarpfeedError, match=f'no image among the fields .*"{name}"'):
            next(iter(warpfeed.Loader(tmp_path / path, **options)))
        fields = {"image": warpfeed.NdArray("u8", list(shape))}
        values, _ = next(iter(warpfeed.Loader(tmp_path / path, batch_size=5, fields=fields, output="numpy")))
        assert (values == np.stack(columns["image"][:5])).all()
        opens = datasets.load_from_disk if path == "saved" else datasets.Dataset.from_parquet
        opened = opens(str(tmp_path / path))
        agrees(warpfeed.Loader(opened.with_transform(pixels), **options))
        warpfeed.pack(opened.with_transform(pixels), tmp_path / f"{path}.lmdb")
        agrees(warpfeed.Loader(tmp_path / f"{path}.lmdb", **options))
