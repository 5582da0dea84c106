"""Tests that `loader.dataset` returns samples without augmentation, and has the labels and classes
of the batches."""

from __future__ import annotations

import io
import json
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Images, bmp
from warpfeed import Augment, Buckets, ConfigError, Loader, TableOptions, WarpfeedError, split

OPTIONS: dict[str, Any] = {"batch_size": 4, "augment": Augment.resize(4), "output": "numpy"}


class Stored:
    """A dataset of images of different sizes, with bytes, an array, JSON and text as fields."""

    classes = ["even", "odd"]

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> dict[str, Any]:
        array = io.BytesIO()
        np.save(array, np.arange(index + 1, dtype=np.int16))
        fields = {"emb.npy": array.getvalue(), "meta.json": json.dumps({"n": index}).encode(), "note.txt": "é".encode()}
        original = bmp(3 + index, 2, (index, 20, 30))
        return {"bmp": original, "label": index % 2, "key": f"k{index}", "raw": b"\x01\x02", **fields}


def test_a_sample_is_what_the_dataset_stores() -> None:
    loader = Loader(Stored(), **OPTIONS)
    assert len(loader.dataset) == 6
    sample = loader.dataset[3]
    assert list(sample) == ["id", "key", "label", "image", "raw", "emb.npy", "meta.json", "note.txt"]
    assert (sample["id"], sample["key"], sample["label"]) == (3, "k3", 1)
    assert sample["image"].shape == (2, 6, 3) and sample["image"].dtype == np.uint8
    assert (sample["image"] == [3, 20, 30]).all() and sample["image"].flags.writeable
    assert sample["emb.npy"].tolist() == [0, 1, 2, 3] and sample["emb.npy"].dtype == np.int16
    assert (sample["meta.json"], sample["note.txt"], sample["raw"]) == ({"n": 3}, "é", b"\x01\x02")
    assert [sample["id"] for sample in loader.dataset] == list(range(6))
    assert loader.dataset[-1]["id"] == 5 and loader.dataset[np.int64(2)]["id"] == 2
    for invalid in (6, -7):
        with pytest.raises(IndexError, match=f"sample {invalid} is out of range: the dataset has 6 samples"):
            loader.dataset[invalid]
    with pytest.raises(TypeError, match="expected a whole number"):
        loader.dataset[1:2]  # type: ignore[index]
    with pytest.raises(ConfigError, match="sample 6 is out of range: the dataset has samples 0 to 5"):
        loader.sample(6)


def test_all_labels_match_the_batches_without_reading_images(mini: str, tmp_path: Path) -> None:
    loader = Loader(mini, **{**OPTIONS, "batch_size": 64, "augment": Augment.train(8)})
    [batch] = loader
    labels = loader.dataset.labels()
    assert labels.dtype == np.int64 and labels.tolist() == batch.labels.tolist() and len(set(labels)) > 1
    some = Loader(mini, subset=[40, 3], classes=loader.classes[::-1], **OPTIONS)
    reversed = some.dataset.labels()
    assert reversed[[40, 3]].tolist() == [len(loader.classes) - 1 - labels[i] for i in (40, 3)]
    assert len(reversed) == 64 and sum(reversed == -1) == 62, "samples outside the subset must have the label -1"
    (tmp_path / "odd.csv").write_text("path,kind,n\n" + "".join(f"{i}.png,{'ab'[i % 3 == 0]},{i}\n" for i in range(30)))
    table = Loader(tmp_path / "odd.csv", table=TableOptions(label="kind"), **OPTIONS)
    assert table.dataset.labels().tolist() == [int(i % 3 == 0) for i in range(30)], "labels must not need the images"
    train, val = split(table.dataset, [0.8, 0.2], seed=1, stratify=True)
    assert sorted(train + val) == list(range(30)) and sum(i % 3 == 0 for i in val) == 2
    part = Loader(tmp_path / "odd.csv", table=TableOptions(label="kind"), subset=train, **OPTIONS)
    assert sorted(sum(split(part.dataset, [0.5, 0.5], seed=2, stratify=True), [])) == sorted(train)
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "0.bmp").write_bytes(bmp(3, 3, (1, 2, 3)))
    with pytest.raises(WarpfeedError, match="^sample 0.*no label"):
        Loader(tmp_path / "flat", **OPTIONS, unlabeled=True).dataset.labels()
    with pytest.raises(AttributeError, match=r"no attribute 'targets'; use labels\(\)"):
        loader.dataset.targets


def test_a_sample_is_not_augmented_and_skips_no_batch(mini: str) -> None:
    loader = Loader(mini, batch_size=16, shuffle=True, seed=1, augment=Augment.train(32), output="numpy")
    first = next(batches := iter(loader))
    again = [loader.sample(id) for id in first.ids]
    assert [sample["label"] for sample in again] == first.labels.tolist()
    assert [sample["key"] for sample in again] == first.sample_keys
    assert all(sample["image"].shape[2] == 3 for sample in again)
    resize = Augment.resize(again[0]["image"].shape[:2])
    full = Loader(mini, batch_size=1, augment=resize, subset=first.ids[:1], output="numpy")
    assert np.array_equal(next(iter(full)).images[0], again[0]["image"]), "the pixels differ from the pixels in batches"
    assert len(list(batches)) == 3
    reopened = pickle.loads(pickle.dumps(loader))
    assert np.array_equal(reopened.sample(first.ids[3])["image"], again[3]["image"])


def test_a_dataset_keeps_sample_numbers_in_a_subset() -> None:
    loader = Loader(Stored(), subset=[4, 1, 5], **OPTIONS)
    assert len(loader.dataset) == 3 and [sample["id"] for sample in loader.dataset] == [4, 1, 5]
    [batch] = loader
    assert batch.ids == [4, 1, 5] == loader.dataset.indices
    assert [loader.dataset[id]["id"] for id in batch.ids] == batch.ids
    assert loader.dataset[np.int64(4)]["key"] == loader.sample(batch.ids[0])["key"] == batch.sample_keys[0]
    assert loader.dataset[-1]["id"] == 5 and loader.dataset.labels().tolist() == [-1, 1, -1, -1, 0, 1]
    for outside in (0, 2, -6):
        with pytest.raises(IndexError, match=f"^sample {outside % 6} is not in the subset of 3 samples; dataset.indices"):
            loader.dataset[outside]
    with pytest.raises(IndexError, match="^sample 6 is out of range: the dataset has 6 samples"):
        loader.dataset[6]
    weighted = Loader(Stored(), weights=[1.0] * 6, **OPTIONS)
    assert len(weighted.dataset) == 6


class Numbered(Stored):
    """Twenty samples, each with a different image, label and length."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"bmp": bmp(4, 4, (index, 2 * index, 3)), "label": index * 7 % 20, "key": f"k{index}"}


IDS = [17, 4, 11, 2, 19, 8, 13]
CHOICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "shuffle": {"shuffle": True, "seed": 3},
    "shuffle_window": {"shuffle_window": 3, "seed": 2},
    "weights": {"weights": [float(id % 3) for id in range(20)], "seed": 5},
    "balanced": {"balanced": True, "seed": 5},
    "sampler": {"sampler": lambda epoch: [11, 4, 4, 19, 8]},
    "buckets": {"buckets": Buckets([id % 6 for id in range(20)], [2]), "shuffle": True, "seed": 1},
    "repeat": {"repeat": 2, "shuffle": True, "seed": 4},
    "global_batch_size": {"global_batch_size": 6, "rank": 1, "world_size": 2, "batch_size": None},
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("subset", [None, IDS, [4, 4, 11, 19, 8]], ids=["all", "subset", "repeated"])
def test_every_visible_index_is_a_dataset_index(choice: str, subset: Any) -> None:
    loader = Loader(Numbered(), subset=subset, **{**OPTIONS, **CHOICES[choice]})
    labels, allowed, seen = loader.dataset.labels(), set(range(20) if subset is None else subset), set()
    for batch in loader:
        stored = [loader.sample(id) for id in batch.ids]
        assert batch.sample_keys == [sample["key"] for sample in stored] == [f"k{id}" for id in batch.ids]
        assert batch.labels.tolist() == [sample["label"] for sample in stored] == labels[batch.ids].tolist()
        assert (batch.images == np.array([sample["image"] for sample in stored])).all()
        assert [loader.dataset[id]["key"] for id in batch.ids] == batch.sample_keys
        seen |= set(batch.ids)
    assert seen and seen <= allowed
    if choice == "weights":
        assert all(id % 3 for id in seen)
    if choice == "sampler":
        assert sorted(seen) == [4, 8, 11, 19]
    parts = split(loader.dataset, [0.5, 0.5], seed=1, stratify=subset is None)
    assert set(sum(parts, [])) == allowed
    assert split(loader.dataset, [1.0], seed=1, labels=labels)[0]


def test_an_index_outside_the_subset_fails_with_its_name() -> None:
    # 2 is a position in the subset but not an index, and 25 exceeds the dataset.
    for outside in (2, 25):
        loader = Loader(Numbered(), subset=[4, 11, 19], sampler=lambda epoch, id=outside: [4, id], **OPTIONS)
        message = f"the sampler returned sample {outside} at position 1 of epoch 0, which is not in the subset"
        with pytest.raises(ConfigError, match=message):
            next(iter(loader))
    for weights in ([1.0] * 3, [1.0] * 19):
        with pytest.raises(ConfigError, match=f"{len(weights)} weights, but the source has 20 samples; even with a subset"):
            Loader(Numbered(), subset=[4, 11, 19], weights=weights, **OPTIONS)
    with pytest.raises(ConfigError, match="labels has 3 entries, but the dataset has 20 samples"):
        split(Loader(Numbered(), subset=[4, 11, 19], **OPTIONS).dataset, [1.0], seed=1, labels=[0, 1, 1])


def test_a_curriculum_by_ids_trains_on_the_scored_samples() -> None:
    score = np.zeros(20)
    order = lambda epoch: sorted(IDS, key=lambda id: score[id])  # noqa: E731
    loader = Loader(Numbered(), subset=IDS, sampler=order, **OPTIONS)
    for batch in loader:
        score[batch.ids] = batch.labels
    ids = [id for batch in loader for id in batch.ids]
    assert ids == sorted(IDS, key=lambda id: id * 7 % 20)


def test_classes_equal_an_image_folder(mini: str) -> None:
    loader = Loader(mini, **OPTIONS)
    assert loader.classes == sorted(path.name for path in Path(mini).iterdir() if path.is_dir())
    assert loader.class_to_idx == {name: label for label, name in enumerate(loader.classes)}
    assert loader.dataset.classes == loader.classes and loader.dataset.class_to_idx == loader.class_to_idx
    own = Loader(mini, classes=list(reversed(loader.classes)), **OPTIONS)
    assert own.dataset[0]["label"] == 3 and own.class_to_idx[loader.classes[0]] == 3, "`classes` must change labels"
    assert Loader(Cut(), **OPTIONS).classes == []


def test_a_sample_that_cannot_be_read_fails_with_its_name() -> None:
    loader = Loader(Images(16, "bad"), **OPTIONS)
    with pytest.raises(WarpfeedError, match=r"^sample 7: .*the seventh is missing") as e:
        loader.dataset[7]
    assert isinstance(e.value.__cause__, ValueError)
    cut = Loader(Cut(), **OPTIONS)
    with pytest.raises(WarpfeedError, match=r"^sample 0 \(0\): decode: bmp"):
        cut.dataset[0]
    with pytest.raises(ConfigError, match=r"^field 'emb.npy' is not npy: "):
        Loader(Cut(b"\x93NUMPY\x01"), **OPTIONS).dataset[0]


class Cut:
    def __init__(self, array: bytes | None = None) -> None:
        self.array = array

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        original = bmp(8, 8, (1, 2, 3))
        return {"bmp": original[:80]} if self.array is None else {"bmp": original, "emb.npy": self.array}


def test_dataset_samples_are_tensors_for_torch(mini: str, torch: Any) -> None:
    loader = Loader(mini, batch_size=4, augment=Augment.resize(8))
    image = loader.dataset[0]["image"]
    stored = Loader(mini, **OPTIONS).dataset[0]["image"]
    assert image.dtype == torch.uint8 and image.is_contiguous()
    assert np.array_equal(image.permute(1, 2, 0).numpy(), stored)
    loaded = torch.utils.data.DataLoader(loader.dataset, batch_size=None)
    assert [sample["key"] for sample in loaded] == [sample["key"] for sample in loader.dataset]


def test_a_dataset_keeps_its_loader_alive_without_a_cycle(mini: str) -> None:
    dataset = Loader(mini, **OPTIONS).dataset
    assert dataset[0]["id"] == 0
    loader = weakref.ref(dataset._loader)
    del dataset
    assert loader() is None, "the loader must be freed without the garbage collector"


@pytest.mark.parametrize("output", ["torch", "numpy", "dlpack"])
def test_valid_is_an_array_of_the_batch(mini: str, torch: Any, output: Any) -> None:
    options: dict[str, Any] = {"batch_size": 24, "last_batch": "pad", "augment": Augment.resize(8)}
    complete, padded = [], []
    for batch in Loader(mini, output=output, **options):
        valid = batch.valid
        assert valid.dtype == (torch.bool if output == "torch" else np.bool_) and valid.shape == (24,)
        padded.append(int(valid.sum()))
        complete += [id for id, counts in zip(batch.ids, valid.tolist(), strict=True) if counts]
    assert padded == [24, 24, 16] and complete == list(range(64))


def test_valid_counts_each_sample_once_over_ranks(mini: str, torch: Any) -> None:
    """The validation from docs/several-gpus.md, on ranks with different numbers of samples."""
    right = total = 0
    for rank in range(3):
        loader = Loader(mini, batch_size=5, last_batch="pad", rank=rank, world_size=3, augment=Augment.resize(8))
        for batch in loader:
            images, labels = batch
            right += int((labels % 2 == 0)[batch.valid].sum())
            total += int(batch.valid.sum())
    assert (right, total) == (32, 64)


def test_collate_receives_valid(mini: str, torch: Any) -> None:
    loader = Loader(
        mini, batch_size=60, last_batch="pad", augment=Augment.resize(8), soft_labels=(4, 0.0),
        collate=lambda batch: {"x": batch["image"], "weight": batch.valid.float()},
    )
    assert [int(batch["weight"].sum()) for batch in loader] == [60, 4]
