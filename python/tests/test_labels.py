"""Tests that masks without `classes` have the values that Pillow reads (lossy WebP is rejected),
that batches contain texts and COCO's category ids, that boxes can be mapped back to their images,
and that tuple batches and dict batches use the same names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warpfeed
from conftest import need
from warpfeed import Augment, Boxes, ConfigError, Geometry, Loader, Mask, MultiHot, NdArray, Text, WarpfeedError

OPTIONS: dict[str, Any] = {"output": "numpy", "drop_field": ["label"], "augment": Augment.pass_through((8, 12))}


def write_blank_images(folder: Path, names: list[str]) -> Path:
    from PIL import Image

    folder.mkdir(parents=True)
    for name in names:
        Image.new("RGB", (12, 8), (9, 9, 9)).save(folder / f"{name}.png")
    return folder


@pytest.fixture
def pil() -> Any:
    return need("PIL.Image")


def mask_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).choice([0, 1, 2, 255], (8, 12)).astype(np.uint8)


def test_masks_of_a_sibling_folder_match_pillow(tmp_path: Path, pil: Any) -> None:
    colors = np.random.default_rng(0).integers(0, 256, 768).astype(np.uint8)
    names, expected = [], []
    (tmp_path / "masks").mkdir()

    def save(name: str, image: Any, **options: Any) -> None:
        path = tmp_path / "masks" / name
        image.save(path, **options)
        names.append(path.stem)
        expected.append(np.asarray(pil.open(path)).astype(int))

    def palette(seed: int) -> Any:
        image = pil.fromarray(mask_of(seed), "P")
        image.putpalette(colors.tobytes())
        return image

    for number, extension in enumerate(["png", "gif", "bmp", "tif"]):
        save(f"palette-{extension}.{extension}", palette(number))
        save(f"gray-{extension}.{extension}", pil.fromarray(mask_of(10 + number)))
    save("interlaced.gif", palette(20), interlace=1)
    save("lzw.tiff", palette(21), compression="tiff_lzw")
    save("deep.tif", pil.fromarray(mask_of(22).astype(np.uint16) * 200))
    loader = Loader(write_blank_images(tmp_path / "images", sorted(names)), masks="masks", fields={"mask": Mask("i64")}, **OPTIONS)
    [batch] = loader
    for key, mask in zip(batch.sample_keys, batch["mask"], strict=True):
        assert np.array_equal(mask, expected[names.index(key)]), key
    target = tmp_path / "packed.tar"
    warpfeed.pack(tmp_path / "images", target, masks="masks")
    [packed] = Loader(target, fields={"mask": Mask("i64")}, **OPTIONS)
    assert np.array_equal(packed["mask"], batch["mask"])
    save("lossless.webp", pil.fromarray(mask_of(30)).convert("RGB"), lossless=True)
    save("lossy.webp", pil.fromarray(mask_of(30)).convert("RGB"))
    both = write_blank_images(tmp_path / "webp", ["lossless", "lossy"])
    loader = Loader(both, masks="masks", fields={"mask": Mask("i64")}, max_skipped=1, **OPTIONS)
    [batch] = loader
    assert batch.valid.tolist() == [True, False] and np.array_equal(batch["mask"][0], mask_of(30))
    assert "lossy webp does not preserve the values" in str(loader.sample_errors()[0][2])


def test_mask_classes_map_values_and_colors(tmp_path: Path, pil: Any) -> None:
    folder = write_blank_images(tmp_path / "images", ["a"])
    (tmp_path / "masks").mkdir()
    mask = mask_of(1)
    pil.fromarray(mask).save(tmp_path / "masks" / "a.png")
    options: dict[str, Any] = {"masks": "masks", **OPTIONS}

    def load_mask(kind: Mask) -> Any:
        [batch] = Loader(folder, fields={"mask": kind}, **options)
        return batch["mask"][0]

    lookup = np.zeros(256, int)
    lookup[[0, 1, 2, 255]] = [5, 6, 7, 255]
    assert np.array_equal(load_mask(Mask("i64", classes={0: 5, 1: 6, 2: 7, 255: 255})), lookup[mask])
    assert np.array_equal(load_mask(Mask("i64", classes={1: 0}, ignore=255)), np.where(mask == 1, 0, 255))
    with pytest.raises(WarpfeedError, match=r"images/a\.png.*mask\.png.*the value 255 is not in the map"):
        load_mask(Mask("i64", classes={0: 0, 1: 1, 2: 2}))
    assert np.array_equal(load_mask(Mask("i64", classes=3, ignore=255)), mask)
    colors = np.stack([mask, mask // 2, 255 - mask], -1)
    pil.fromarray(colors).save(tmp_path / "masks" / "a.png")
    by_color = {tuple(int(part) for part in (v, v // 2, 255 - v)): int(v) for v in (0, 1, 2)}
    assert np.array_equal(load_mask(Mask("u8", classes=by_color, ignore=9)), np.where(mask == 255, 9, mask))
    with pytest.raises(WarpfeedError, match=r"this png is RGB.*Mask\(classes=\{\(128, 0, 0\): 1\}\)"):
        load_mask(Mask("i64"))
    for classes in ({}, {"a": 1}, {0: 0.5}, {(1, 2): 0}):
        with pytest.raises((ConfigError, TypeError, ValueError)):
            Loader(folder, fields={"mask": Mask("i64", classes=classes)}, **options)
    with pytest.raises(ConfigError, match="no such folder"):
        Loader(folder, masks="other", **OPTIONS)
    with pytest.raises(TypeError, match="only if data is the path of a folder"):
        Loader(warpfeed.Voc(tmp_path), masks="masks", **OPTIONS)


def test_texts_accompany_samples_in_every_output(tmp_path: Path, pil: Any) -> None:
    write_blank_images(tmp_path / "images", [f"{n}" for n in range(10)])
    rows: list[dict[str, Any]] = []
    for n in range(10):
        rows.append({"path": f"images/{n}.png", "caption": f"número {n} " * (n + 1), "label": n % 3})
    table = tmp_path / "set.jsonl"
    table.write_text("\n".join(json.dumps(row) for row in rows))
    options: dict[str, Any] = {**OPTIONS, "drop_field": [], "fields": {"caption": Text()}, "batch_size": 4, "shuffle": True, "seed": 1}
    loader = Loader(table, num_workers=3, **options)
    for _ in range(2):
        for batch in loader:
            assert batch["caption"] == [rows[id]["caption"] for id in batch.ids]
            assert [rows[id]["label"] for id in batch.ids] == batch["label"].tolist()
    state, batches = None, []
    for batch in loader:
        batches.append(batch["caption"])
        state = state or loader.state_dict()
    resumed = Loader(table, resume=state, **options)
    assert [batch["caption"] for batch in resumed] == batches[1:]
    collated = next(iter(Loader(table, collate=lambda batch: batch["caption"], **options)))
    assert len(collated) == 4 and all(isinstance(text, str) for text in collated)


def coco(folder: Path) -> Path:
    from PIL import Image

    (folder / "images").mkdir()
    Image.new("RGB", (40, 30)).save(folder / "images" / "a.png")
    categories = [{"id": 90, "name": "zebra"}, {"id": 3, "name": "ant"}, {"id": 7, "name": "cow"}]
    boxes = [[4, 6, 10, 8], [20, 10, 15, 12]]
    listed = {
        "images": [{"id": 1, "file_name": "a.png", "width": 40, "height": 30}],
        "annotations": [
            {"id": n, "image_id": 1, "category_id": category, "bbox": box, "iscrowd": 0, "area": 1}
            for n, (category, box) in enumerate(zip([90, 7], boxes, strict=True))
        ],
        "categories": categories,
    }
    path = folder / "set.json"
    path.write_text(json.dumps(listed))
    return path


def test_coco_categories_keep_ids_when_renumbered(tmp_path: Path, pil: Any) -> None:
    path = coco(tmp_path)
    fields = {"boxes": Boxes(4, columns={"class": "i64"})}
    options: dict[str, Any] = {**OPTIONS, "augment": Augment.resize(16), "fields": fields}
    loader = Loader(path, **options)
    assert (loader.classes, loader.category_ids) == (["ant", "cow", "zebra"], [3, 7, 90])
    [batch] = loader
    results = [loader.category_ids[k] for k in batch["boxes.class"][0][:2]]
    assert results == [90, 7]
    renumbered = Loader(path, classes=["zebra", "ant", "cow"], **options)
    [batch] = renumbered
    assert [renumbered.category_ids[k] for k in batch["boxes.class"][0][:2]] == [90, 7]
    extra = Loader(path, classes=["zebra", "ant", "cow", "yak"], **options)
    assert extra.category_ids == [], "yak is not a COCO category, so no class has an id"
    assert Loader(write_blank_images(tmp_path / "plain", ["a"]), output="numpy", unlabeled=True).category_ids == []


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_boxes_map_back_after_letterbox_crop_and_flip(
    tmp_path: Path, pil: Any, output: str
) -> None:
    if output == "torch":
        need("torch")
    path = coco(tmp_path)
    original = np.array([[4, 6, 14, 14], [20, 10, 35, 22]], float)
    fields = {"boxes": Boxes(2, columns={"class": "i64"}), "geo": Geometry()}
    augments = [
        Augment.letterbox(64), Augment.letterbox(64).flip(1.0).vertical_flip(1.0), Augment.resize((50, 33)).flip(1.0),
        Augment.train(224).scale(0.95, 1.0), Augment.eval(60, 56).flip(1.0),
    ]  # fmt: skip
    for augment in augments:
        loader = Loader(path, fields=fields, **{**OPTIONS, "augment": augment, "output": output})
        for _ in range(3):
            [batch] = loader
            n = int(batch["boxes.count"][0])
            back = warpfeed.boxes_to_source(batch["boxes"], batch["geo"], batch["geo.size"])
            assert type(back) is type(batch["boxes"]) and tuple(back.shape) == tuple(batch["boxes"].shape)
            one = warpfeed.boxes_to_source(batch["boxes"][0], batch["geo"][0])
            assert np.allclose(np.asarray(one)[:n], np.asarray(back)[0][:n], atol=1e-2)
            actual, low, high = np.asarray(back)[0], original - 0.05, original + 0.05
            if "letterbox" in repr(augment) or "resize" in repr(augment):
                assert np.allclose(actual, original, atol=0.05), augment
            elif n == 2:
                # Cropping clips boxes, so the results are inside the original boxes.
                assert (actual[:, :2] >= low[:, :2]).all() and (actual[:, 2:] <= high[:, 2:]).all(), augment
                assert np.allclose(actual[1, 1], original[1, 1], atol=0.5), augment
    same = np.array([[1.0, 0, 0], [0, 1, 0]])
    outside = warpfeed.boxes_to_source(np.array([[-9.0, -9, 99, 99]]), same, np.array([30, 40]))
    assert outside.tolist() == [[0, 0, 40, 30]]
    with pytest.raises(ValueError, match="expected .N, M, 4. and .N, 2, 3."):
        warpfeed.boxes_to_source(np.zeros((2, 4)), np.zeros((2, 2, 3)))


def test_both_forms_of_a_batch_have_the_same_names(mini: str) -> None:
    options: dict[str, Any] = {"output": "numpy", "augment": Augment.resize(8), "batch_size": 4}
    pair = next(iter(Loader(mini, **options)))
    images, labels = pair
    assert pair["image"] is images and pair["label"] is labels and pair[0] is images and pair[:1] == (images,)
    assert pair.images is images and pair.labels is labels
    with pytest.raises(KeyError, match="'image' and 'label'"):
        pair["mask"]
    named = next(iter(Loader(mini, fields={"geo": Geometry()}, **options)))
    assert named.images is named["image"] and named.labels is named["label"]
    assert np.array_equal(named.labels, labels)
    without = next(iter(Loader(mini, drop_field=["label"], fields={"geo": Geometry()}, **options)))
    assert not hasattr(without, "labels") and hasattr(without, "images")


def test_a_dataset_without_images_needs_no_drop_field(tmp_path: Path) -> None:
    table = tmp_path / "set.csv"
    table.write_text("age,tags\n1,cat|dog\n2,cat\n")
    fields: dict[str, Any] = {"age": NdArray("i64")}
    [batch] = Loader(table, fields=fields, output="numpy")
    assert list(batch) == ["age"] and batch["age"].tolist() == [1, 2]
    with pytest.raises(KeyError, match="has no images. If a column of a CSV, TSV or JSON Lines file contains image paths"):
        batch["image"]
    with pytest.raises(WarpfeedError, match=r"MultiHot\(separator='\|'\)"):
        list(Loader(table, fields={"tags": MultiHot(["cat", "dog"])}, output="numpy"))
    [batch] = Loader(table, fields={"tags": MultiHot(["cat", "dog"], separator="|")}, output="numpy")
    assert batch["tags"].tolist() == [[1, 1], [1, 0]]


def test_strings_of_a_python_dataset_are_split_into_labels() -> None:
    class Tagged:
        def __init__(self, tags: list[Any]) -> None:
            self.tags = tags

        def __len__(self) -> int:
            return len(self.tags)

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"tags": self.tags[index]}

    def load(tags: list[Any], **options: Any) -> list[list[int]]:
        fields = {"tags": MultiHot(["cat", "dog"], dtype="u8", **options)}
        [batch] = Loader(Tagged(tags), drop_field=["image", "label"], fields=fields, output="numpy")
        return batch["tags"].tolist()

    assert load(["cat", "cat, dog", "", "1", ["dog"]]) == [[1, 0], [1, 1], [0, 0], [0, 1], [0, 1]]
    assert load(["cat dog", "dog"], separator=" ") == [[1, 1], [0, 1]]
    with pytest.raises(WarpfeedError, match="'bird'|\"bird\""):
        load(["cat,bird"])


def test_an_array_field_parses_strings_as_numbers(tmp_path: Path) -> None:
    class Numbers:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"number": ["12345678", "-7"][index], "note": ["12345678", "é"][index]}

    warpfeed.pack(Numbers(), tmp_path / "set.tar")
    for data in (Numbers(), tmp_path / "set.tar"):
        fields: dict[str, Any] = {"number": NdArray("i64"), "note": Text()}
        [batch] = Loader(data, drop_field=["image", "label"], fields=fields, output="numpy")
        assert batch["number"].tolist() == [12345678, -7]
        assert list(batch["note"]) == ["12345678", "é"]
