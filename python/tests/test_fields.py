"""Tests that fields, tables and annotated datasets have the same batches in Python as in Rust, bit
for bit."""

from __future__ import annotations

import csv
import io
import json
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warpfeed
from conftest import Images, bmp, contents, rust_batches
from warpfeed import Augment, Boxes, DenseMap, Keypoints, Loader, Mask, MultiHot, NdArray, Ragged, TableOptions, WarpfeedError

#: `recipe` in the Rust example `raw_batches` defines the same options under the same names.
RECIPES = {
    "boxes": {
        "unlabeled": True,
        "augment": Augment.iou_crop((40, 48)).flip(0.5),
        "fields": {
            "boxes": Boxes(
                20, columns={"class": "i64", "crowd": "u8"}, out_format="cxcywh", out_relative=True, min_visible=0.1, min_size=1,
                masks=True, points=3, flip_pairs=[(1, 2)], truncate=True,
            ),
        },
    },
    "masks": {
        "unlabeled": True,
        "augment": Augment.scale_jitter(48, 0.5, 1.5).fill(1, 2, 3),
        "fields": {
            "boxes": Boxes(30, columns={"difficult": "i32"}, out_format="xywh"),
            "mask": Mask("i16", fill=255, classes=22),
            "again": Mask("u8", source_field="mask"),
        },
    },
    "maps": {
        "augment": Augment.letterbox((24, 40)).fill(114, 114, 114).flip(0.5),
        "fields": {
            "depth": DenseMap(nearest=True, fill=-1),
            "near": DenseMap(source_field="depth"),
            "heat": DenseMap(3),
            "flow": DenseMap.flow(),
            "marks": Keypoints(2, visibility=True, flip_pairs=[(0, 1)]),
            "corners": Keypoints(1),
        },
    },
    "table": {
        "table": TableOptions(
            image="image", root="images", label="kind", gather={"two": ["a", "b"]},
            columns=["tags", "note", "rows"], delimiter=";",
        ),
        "classes": ["dog", "cat", "elk"],
        "augment": Augment.resize(8, 8),
        "fields": {
            "two": NdArray("f32", [2]),
            "tags": MultiHot(["x", "y", "z"], dtype="u8", separator="|"),
            "note": Ragged.bytes(4, truncate=True),
            "rows": Ragged("i16", [], 3, padding=-1),
        },
    },
}  # fmt: skip


def drawn(out: Path, layout: str) -> None:
    command = [
        sys.executable,
        "-m",
        "warpfeed",
        "synth",
        "--out",
        out,
        "--layout",
        layout,
        "--images",
        "25",
        "--side",
        "64",
    ]
    subprocess.run([*command, "--classes", "4", "--seed", "9"], check=True, capture_output=True)


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def shard(path: Path) -> None:
    """Writes a tar of images with maps and points."""
    random = np.random.default_rng(3)
    with tarfile.open(path, "w") as tar:
        for number in range(12):
            width, height = 30 + number, 20 + number % 5
            maps = {"depth": random.normal(size=(height, width)), "heat": random.normal(size=(height, width, 3))}
            members = {name: npy(array.astype("f4")) for name, array in maps.items()}
            members["flow"] = npy(random.normal(size=(height, width, 2)).astype("f8"))
            files = {f"{name}.npy": content for name, content in members.items()}
            files["marks.json"] = json.dumps([[3.5, 4, 2], [20, 8.25, 1]]).encode()
            files["corners.txt"] = b"1.5 2"
            files["bmp"], files["cls"] = bmp(width, height, (number, 2, 3)), str(number % 3).encode()
            for name, content in files.items():
                member = tarfile.TarInfo(f"{number:03}.{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def table(folder: Path) -> Path:
    (folder / "images").mkdir()
    rows = [["image", "kind", "a", "b", "tags", "note", "rows", "unused"]]
    for number in range(9):
        (folder / "images" / f"{number}.bmp").write_bytes(bmp(6, 5, (number, 2, 3)))
        tags = "|".join("xyz"[: number % 4])
        listed = " ".join(map(str, range(number % 4)))
        rows.append(
            [f"{number}.bmp", ["cat", "dog"][number % 2], f"{number / 2}", "-3", tags, f"text {number}", listed, "9"]
        )
    with open(folder / "set.csv", "w", newline="") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    return folder / "set.csv"


@pytest.fixture
def data(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The table's `root` is relative to the working directory.
    monkeypatch.chdir(tmp_path)
    if request.param == "boxes":
        drawn(tmp_path / "set", "coco")
        return tmp_path / "set" / "annotations" / "instances_train.json"
    if request.param == "masks":
        drawn(tmp_path / "set", "voc")
        return tmp_path / "set" / "ImageSets" / "Segmentation" / "train.txt"
    if request.param == "maps":
        shard(tmp_path / "set.tar")
        return tmp_path / "set.tar"
    return table(tmp_path)


@pytest.mark.parametrize(("data", "recipe"), [(name, name) for name in RECIPES], indirect=["data"])
def test_fields_equal_the_rust_loader_bit_for_bit(data: Path, recipe: str) -> None:
    expected = rust_batches({"data": str(data), "recipe": recipe, "epochs": 2, "batch_size": 5, "shuffle": 7})
    loader = Loader(data, output="numpy", num_workers=1, batch_size=5, shuffle=True, seed=7, **RECIPES[recipe])
    actual = contents(loader, 2)
    assert actual == expected and len(actual) >= 4
    assert set(actual[0][3]) > set(RECIPES[recipe]["fields"]), "counts, images and labels must be delivered as well"
    # Every field must have nonzero values, except crowd flags, which `synth` does not generate.
    for name in set(actual[0][3]) - {"boxes.crowd"}:
        assert any(set(batch[3][name]) - {0} for batch in actual), name


@pytest.mark.parametrize("data", ["boxes"], indirect=True)
def test_coco_boxes_have_the_shapes_of_their_table(data: Path, torch: Any) -> None:
    boxes = Boxes(20, columns={"class": "i64"}, masks=True, points=3)
    options = {"batch_size": 5, "augment": Augment.letterbox((48, 64)), "unlabeled": True, "fields": {"boxes": boxes}}
    loader = Loader(data, **options)
    batch = next(iter(loader))
    shapes = {name: tuple(field.shape) for name, field in batch.items()}
    assert shapes == {
        "image": (5, 3, 48, 64), "label": (5,), "boxes": (5, 20, 4), "boxes.count": (5,), "boxes.class": (5, 20),
        "boxes.masks": (5, 20, 48, 64), "boxes.points": (5, 20, 3, 3),
    }  # fmt: skip
    truth = json.loads(data.read_text())
    assert loader.classes == [category["name"] for category in sorted(truth["categories"], key=lambda c: c["id"])]
    images = sorted(truth["images"], key=lambda image: image["id"])
    for row, id in enumerate(batch.ids):
        own = [result for result in truth["annotations"] if result["image_id"] == images[id]["id"]]
        count = int(batch["boxes.count"][row])
        assert count == len(own) and (batch["boxes.class"][row, count:] == -1).all()
        width, height = images[id]["width"], images[id]["height"]
        factor = min(64 / width, 48 / height)
        shown = (round(width * factor), round(height * factor))
        left, top = (64 - shown[0]) // 2, (48 - shown[1]) // 2
        for result, (x, y, w, h) in zip(batch["boxes"][row], (one["bbox"] for one in own), strict=False):
            sx, sy = shown[0] / width, shown[1] / height
            expected = [left + x * sx, top + y * sy, left + (x + w) * sx, top + (y + h) * sy]
            assert torch.allclose(result, torch.tensor(expected), atol=1e-3), (id, result, expected)


@pytest.mark.parametrize("data", ["boxes"], indirect=True)
def test_coco_voc_and_yolo_objects_open_the_right_samples(data: Path, tmp_path: Path) -> None:
    options = {"output": "numpy", "batch_size": 8, "augment": Augment.letterbox(32, 32), "unlabeled": True}
    options["fields"] = {"boxes": Boxes(20, columns={"class": "i64"})}
    expected = contents(Loader(data, **options))
    originals = data.parents[1] / "train"
    moved = tmp_path / "elsewhere"
    originals.rename(moved)
    with pytest.raises(WarpfeedError):
        contents(Loader(data, **options))
    coco = warpfeed.Coco(data, images=moved)
    assert contents(Loader(coco, **options)) == expected
    joined = Loader(warpfeed.Concat([coco, coco]), **options)
    assert len(joined.dataset) == 2 * len(Loader(coco, **options).dataset) and joined.dataset_index(0) == 0
    assert joined.dataset_index(len(joined.dataset) - 1) == 1
    mixed = Loader([(coco, 1.0), (coco, 3.0)], **options)
    assert {mixed.dataset_index(id) for batch in mixed for id in batch.ids} == {0, 1}

    drawn(tmp_path / "voc", "voc")
    named = Loader(warpfeed.Voc(tmp_path / "voc"), **{**options, "fields": {"boxes": Boxes(20)}})
    assert contents(named) == contents(Loader(tmp_path / "voc", **{**options, "fields": {"boxes": Boxes(20)}}))

    for split, colors in [("train", 2), ("val", 1)]:
        for number in range(colors):
            for kind, content in [
                ("images", bmp(20, 10, (number, 0, 0))),
                ("labels", b"0 0.5 0.5 1 1\n1 0.25 0.5 0.25 0.5\n"),
            ]:
                file = tmp_path / "yolo" / kind / split / f"{number}.{'bmp' if kind == 'images' else 'txt'}"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
    (tmp_path / "yolo" / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [a, b]\n")
    options["augment"] = Augment.pass_through((10, 20))
    yolo = {
        split: Loader(warpfeed.Yolo(tmp_path / "yolo" / "data.yaml", split), **options)
        for split in ["train", "val", None]
    }
    assert {split: len(loader.dataset) for split, loader in yolo.items()} == {"train": 2, "val": 1, None: 2}
    [batch] = yolo["val"]
    assert batch["boxes"][0, :3].tolist() == [[0, 0, 20, 10], [2.5, 2.5, 7.5, 7.5], [0, 0, 0, 0]]
    assert batch["boxes.class"][0, :3].tolist() == [0, 1, -1] and yolo["val"].classes == ["a", "b"]


def test_tables_of_all_kinds_are_opened_by_their_columns(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.bmp").write_bytes(bmp(4, 4, (number, 0, 0)))
    rows = [{"file_name": f"{n}.bmp", "label": f"class {n % 2}", "score": n / 4} for n in range(3)]
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, between in [("set.csv", ","), ("set.tsv", "\t")]:
        lines = [list(rows[0]), *(map(str, row.values()) for row in rows)]
        (tmp_path / name).write_text("".join(between.join(line) + "\n" for line in lines))
    bare = "".join(f"{row['file_name']},{row['label']},{row['score']}\n" for row in rows)
    (tmp_path / "bare.csv").write_text(bare)
    options = {"output": "numpy", "augment": Augment.pass_through(4, 4)}
    results = {}
    for name in ["set.jsonl", "set.csv", "set.tsv"]:
        loader = Loader(tmp_path / name, fields={"score": NdArray("f32")}, **options)
        results[name] = contents(loader)
        assert loader.classes == ["class 0", "class 1"]
    assert results["set.jsonl"] == results["set.csv"] == results["set.tsv"]
    headless = TableOptions(image="0", label="1", headerless=True)
    [batch] = Loader(tmp_path / "bare.csv", table=headless, fields={"2": NdArray("f32")}, **options)
    assert batch["2"].tolist() == [0, 0.25, 0.5] and batch["label"].tolist() == [0, 1, 0]
    [batch] = Loader(tmp_path / "set.csv", table=TableOptions(without_label=True), unlabeled=True, **options)
    assert batch.labels.tolist() == [-1] * 3
    with pytest.raises(WarpfeedError, match='no column "kind": the table has "file_name"'):
        Loader(tmp_path / "set.csv", table=TableOptions(label="kind"), **options)


def test_a_class_list_gives_all_datasets_the_same_labels(mini: str, tmp_path: Path) -> None:
    options = {"output": "numpy", "batch_size": 64, "augment": Augment.train(32)}
    own = Loader(mini, **options)
    names = own.classes
    listed = ["another", *reversed(names)]
    (tmp_path / "classes.txt").write_text("\n".join(listed))
    (tmp_path / "classes.json").write_text(json.dumps(listed))
    [(_, labels)] = own
    for choice in [
        {"classes": listed},
        {"classes_file": tmp_path / "classes.txt"},
        {"classes_file": str(tmp_path / "classes.json")},
    ]:
        loader = Loader(mini, **choice, **options)
        [(_, numbered)] = loader
        assert loader.classes == listed and [listed[n] for n in numbered] == [names[n] for n in labels]
    source = Loader(Images(4), classes=["odd", "even"], output="numpy", augment=Augment.resize(8, 8))
    assert [labels.tolist() for _, labels in source] == [[1, 0, 1, 0]]
    mixture = Loader([(mini, 1.0), (Images(4), 0.01)], classes=[*names, "even", "odd"], seed=1, **options)
    assert mixture.classes == [*names, "even", "odd"]
    with pytest.raises(WarpfeedError, match="classes"):
        Loader(mini, classes=names[1:], **options)
    with pytest.raises(ValueError, match="set one of them"):
        Loader(mini, classes=names, classes_file="x", **options)


def test_a_folder_listing_is_cached_on_request(mini: str, tmp_path: Path) -> None:
    import os
    import shutil
    import time

    shutil.copytree(mini, tmp_path / "set")
    before = time.time() - 60
    for folder, _, _ in os.walk(tmp_path / "set"):
        os.utime(folder, (before, before))
    options = {"output": "numpy", "augment": Augment.train(32)}
    expected = contents(Loader(tmp_path / "set", **options))
    assert not (tmp_path / "set.warpfeed-index").exists()
    for _ in range(2):
        assert contents(Loader(tmp_path / "set", cache_listing=True, **options)) == expected
        assert (tmp_path / "set.warpfeed-index").exists()


def test_field_kinds_can_be_pickled_printed_and_compared() -> None:
    parts = [kind for recipe in RECIPES.values() for kind in recipe["fields"].values()]
    parts += [
        RECIPES["table"]["table"],
        warpfeed.Coco("a.json", "b"),
        warpfeed.Yolo("x.yaml", "val"),
        warpfeed.Voc("v"),
    ]
    parts += [warpfeed.Concat(["a", "b"], match_labels_by_name=True), MultiHot(80), DenseMap.flow(nearest=True)]
    for part in parts:
        again = pickle.loads(pickle.dumps(part))
        assert again == part and hash(again) == hash(part) and repr(again) == repr(part)
        assert eval(repr(part), vars(warpfeed)) == part, repr(part)


def test_a_number_is_the_shape_of_a_single_axis() -> None:
    assert NdArray("f32", 768) == NdArray("f32", [768]) and NdArray("f32", np.int64(2)) == NdArray("f32", (2,))
    assert Ragged("f32", 4) == Ragged("f32", [4])
    for shape, error in [(7.5, TypeError), ("768", TypeError), (-1, ValueError), (True, TypeError)]:
        for name, kind in [("shape", NdArray), ("row_shape", Ragged)]:
            with pytest.raises(error, match=f"^{name}=.*: expected a whole number"):
                kind("f32", shape)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("field", "error", "text"),
    [
        (Mask("f32"), WarpfeedError, "masks cannot have the type float32: use an integer type"),
        (Mask("u8", fill=300), WarpfeedError, "fill=300 does not fit into uint8"),
        (Boxes(0), WarpfeedError, "expected at least 1"),
        (Boxes(3, out_format="yxyx"), ValueError, "out_format='yxyx': expected one of 'xyxy'"),
        (Boxes(3, columns={"class": "int4"}), ValueError, "dtype='int4'"),
        (Boxes(3, min_visible=2), WarpfeedError, "min_visible"),
        (MultiHot([]), WarpfeedError, "class"),
        (Keypoints(3, flip_pairs=[(0, 3)]), WarpfeedError, "3"),
        (Ragged("u8", [], 3, padding=0.5), ValueError, "the padding is 0.5, which uint8 cannot hold"),
    ],
)  # fmt: skip
def test_a_field_that_cannot_work_is_refused_with_its_name(mini: str, field: object, error: type, text: str) -> None:
    with pytest.raises(error, match=text) as raised:
        Loader(mini, fields={"extra": field}, output="numpy")
    if error is WarpfeedError:
        assert "extra" in str(raised.value)


def test_options_that_cannot_work_are_refused(mini: str) -> None:
    with pytest.raises(WarpfeedError, match="iou_crop needs a field with boxes, such as warpfeed.Boxes"):
        Loader(mini, augment=Augment.iou_crop(32, 32), output="numpy")
    with pytest.raises(WarpfeedError, match="fill needs letterbox, scale_jitter, random_crop"):
        Loader(mini, augment=Augment.train(32).fill(1, 2, 3), output="numpy")
    with pytest.raises(ValueError, match="one ASCII character"):
        TableOptions(delimiter="ab")
    with pytest.raises(ValueError, match="set one of them"):
        warpfeed.Concat(["a"], match_labels_by_name=True, keep_labels=True)


@pytest.mark.parametrize("name", ["2", "3", "4", "5", "6", "7", "8", "square"])
def test_boxes_follow_exif_rotation_as_in_torchvision(tmp_path: Path, name: str) -> None:
    fixtures = Path(__file__).parents[2] / "tests/fixtures/orientation"
    case = next(case for case in json.loads((fixtures / "cases.json").read_text()) if case["name"] == name)
    (tmp_path / "a.jpg").write_bytes((fixtures / f"{name}.jpg").read_bytes())
    (stored, high), (width, height) = case["stored"], case["upright"]
    image = {"id": 1, "file_name": "a.jpg", "width": stored, "height": high}
    boxes = [
        {"id": i, "image_id": 1, "category_id": 1, "bbox": [a, b, c - a, d - b]}
        for i, (a, b, c, d) in enumerate(case["boxes"])
    ]
    coco = {"images": [image], "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "x.json").write_text(json.dumps(coco))

    def found(**options: Any) -> Any:
        augment = Augment.pass_through((height, width))
        fields = {"boxes": Boxes(3)}
        loader = Loader(tmp_path / "x.json", augment=augment, unlabeled=True, fields=fields, output="numpy", **options)
        return next(iter(loader))["boxes"][0].tolist()

    assert found(annotations_follow="stored") == case["boxes_upright"]
    if [stored, high] == [width, height]:
        assert found(annotations_follow="upright") == case["boxes"]
        with pytest.raises(WarpfeedError, match='annotations_follow="stored" or "upright"'):
            found()
    else:
        assert found() == case["boxes_upright"]
    with pytest.raises(ValueError, match="annotations_follow='left': expected one of 'stored', 'upright'"):
        found(annotations_follow="left")


def test_maps_have_the_layout_of_the_images(tmp_path: Path, torch: Any) -> None:
    shard(tmp_path / "maps.tar")
    options: dict[str, Any] = {
        "batch_size": 12, "augment": Augment.letterbox((24, 40)).flip(0.5),
        "fields": {"heat": DenseMap(3), "flow": DenseMap.flow(), "depth": DenseMap()},
    }  # fmt: skip
    [expected] = Loader(tmp_path / "maps.tar", output="numpy", layout="nhwc", **options)
    assert expected["heat"].shape == (12, 24, 40, 3) and expected["flow"].shape == (12, 24, 40, 2)
    for output in ("numpy", "torch", "dlpack"):
        for layout in ("channels_last", "nchw", "nhwc"):
            [batch] = Loader(tmp_path / "maps.tar", output=output, layout=layout, **options)
            actual = {name: np.asarray(batch[name]) for name in ("image", "heat", "flow", "depth")}
            assert np.array_equal(actual["depth"], expected["depth"])
            for name in ("heat", "flow"):
                array = actual[name] if layout == "nhwc" else actual[name].transpose(0, 2, 3, 1)
                assert np.array_equal(array, expected[name]), (output, layout, name)
            axis = 3 if layout == "nhwc" else 1
            assert np.concatenate([actual["image"], actual["heat"], actual["flow"]], axis).shape[axis] == 8
            if output == "torch" and layout != "nhwc":
                format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
                assert batch["heat"].is_contiguous(memory_format=format)


def test_members_of_a_tar_are_read_by_the_format_that_names_them(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.float64).reshape(4, 3) + 0.1
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for number, row in enumerate(rows):
            array = io.BytesIO()
            np.save(array, row)
            for name, data in {"npy": array.getvalue(), "json": json.dumps([number, 2.5]).encode()}.items():
                member = tarfile.TarInfo(f"{number}.{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    fields = {"npy": NdArray("f64", [3]), "json": NdArray("f32", [2])}
    loader = Loader(tmp_path / "x.tar", batch_size=4, drop_field=["image", "label"], fields=fields)
    (batch,) = loader
    result = np.from_dlpack(batch["npy"])
    assert result.dtype == np.float64 and np.array_equal(result, rows)
    assert np.array_equal(np.asarray(batch["npy"]), rows)
    assert np.asarray(batch["json"]).tolist() == [[0, 2.5], [1, 2.5], [2, 2.5], [3, 2.5]]


def test_integers_that_32_bits_would_change_need_64_bits() -> None:
    class Rowwise:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"x": np.array([2**24 + index, 0.1])}

    def loader(dtype: Any) -> Loader:
        return Loader(Rowwise(), batch_size=4, drop_field=["image", "label"], fields={"x": NdArray(dtype, [2])})

    (batch,) = loader(np.float64)
    assert np.array_equal(np.asarray(batch["x"]), [[2**24 + index, 0.1] for index in range(4)])
    with pytest.raises(WarpfeedError, match="16777217, which float32 cannot hold exactly .read it as float64"):
        list(loader("f32"))


def test_pack_refuses_keys_and_samples_together(mini: str, tmp_path: Path) -> None:
    with pytest.raises(warpfeed.ConfigError, match="samples and keys are both set"):
        warpfeed.pack(mini, tmp_path / "x.tar", keys=["a"], samples=[0])
    assert not list(tmp_path.iterdir())
