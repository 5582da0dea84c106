"""Tests that opening a dataset fails if an option would have no effect, or if there are no labels
to deliver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warpfeed
from conftest import bmp
from warpfeed import Augment, Concat, ConfigError, Loader, TableOptions, WarpfeedError

PIXELS = Augment.resize(8, 8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("cat", "dog"):
        (tmp_path / "set" / name).mkdir(parents=True)
        (tmp_path / "set" / name / "1.bmp").write_bytes(bmp(8, 8, (9, 9, 9)))
    (tmp_path / "t.csv").write_text("where,label\nset/cat/1.bmp,0\nset/dog/1.bmp,1\n")
    return tmp_path / "set"


class Source:
    """A dataset of two images from a folder, with the given labels."""

    def __init__(self, folder: Path, *labels: int) -> None:
        self.bytes, self.labels = (folder / "cat" / "1.bmp").read_bytes(), labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        return self.bytes, self.labels[index]


def test_an_opening_option_without_effect_is_rejected(folder: Path, tmp_path: Path) -> None:
    table, columns, source = tmp_path / "t.csv", TableOptions(image="where"), Source(folder, 0, 1)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (folder, {"table": columns}, "table describes columns"),
        (source, {"table": columns}, "table describes columns"),
        (Concat([folder, folder]), {"table": columns}, "table describes columns"),
        ([(folder, 0.5), (source, 0.5)], {"table": columns}, "table describes columns"),
        (table, {"cache_listing": True, "table": columns}, "cache_listing=True saves the listing"),
        (source, {"cache_listing": True}, "cache_listing=True saves the listing"),
        (folder, {"cache_bytes": 1 << 20}, "cache_bytes has no effect: only data from URLs is cached"),
        (source, {"cache_bytes": 1 << 20}, "cache_bytes has no effect: only data from URLs is cached"),
        (Concat([folder]), {"cache_refresh": True}, "cache_refresh has no effect: only data from URLs is cached"),
        ("s3://bucket/train", {"cache_refresh": True}, "cache_refresh needs cache_bytes"),
    ]
    for data, options, words in cases:
        with pytest.raises(ConfigError) as error:
            Loader(data, augment=PIXELS, **options)
        assert words in str(error.value), (data, options)
    for data, options, words in [
        (folder, {"table": columns}, "table describes"),
        (source, {"cache_listing": True}, "cache_listing=True"),
    ]:
        with pytest.raises(ConfigError) as error:
            warpfeed.pack(data, tmp_path / "p.tar", **options)
        assert words in str(error.value)


def test_one_of_several_datasets_may_use_an_opening_option(folder: Path, tmp_path: Path) -> None:
    columns = TableOptions(image="where")
    joined = Concat([tmp_path / "t.csv", folder], keep_labels=True)
    mixture = [(tmp_path / "t.csv", 0.5), (folder, 0.5)]
    for data, options in [(joined, {}), (mixture, {"keep_labels": True})]:
        with Loader(data, augment=PIXELS, batch_size=2, table=columns, cache_listing=True, **options) as loader:
            assert sum(len(labels) for _, labels in loader) == 4
    with Loader(tmp_path / "t.csv", augment=PIXELS, table=columns) as loader:
        assert [labels.tolist() for _, labels in loader] == [[0, 1]]


def test_packing_numbers_the_classes_and_names_the_format(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("dog\ncat\n")
    named, target = {"classes": ["dog", "cat"]}, tmp_path / "p.tar"
    for data, options, labels in [
        (folder, named, [1, 0]),
        (str(folder), {"classes_file": tmp_path / "names.txt", "format": "folder"}, [1, 0]),
        (tmp_path / "t.csv", {"table": TableOptions(image="where"), "format": "table", **named}, [0, 1]),
        # The labels of a dataset without class names are already positions in the list.
        (Source(folder, 0, 1), named, [0, 1]),
        (Concat([folder]), named, [1, 0]),
    ]:
        warpfeed.pack(data, target, force=True, **options)
        with Loader(target, augment=PIXELS, output="numpy") as loader:
            assert [found.tolist() for _, found in loader] == [labels] and loader.classes == ["dog", "cat"], data
    for data, options, words in [
        (folder, {"classes": ["cat"]}, "dog"),
        (Source(folder, 0, 2), named, "label 2"),
        (folder, {"classes": ["cat", "dog"], "classes_file": "names.txt"}, "set one of them"),
        (folder, {"format": "imagefolder"}, "format \"imagefolder\": expected one of "),
        (Source(folder, 0), {"format": "folder"}, "format='folder' requires data to be a path"),
    ]:
        with pytest.raises(WarpfeedError) as error:
            warpfeed.pack(data, tmp_path / "x.tar", **options)
        assert words in str(error.value), (data, options)


def test_opening_a_flat_folder_without_labels_fails(folder: Path) -> None:
    flat = folder / "cat"
    with pytest.raises(ConfigError, match="pass unlabeled=True to read them as -1, or drop_field="):
        Loader(flat, augment=PIXELS)
    # `drop_field` and `soft_labels` contradict each other.
    with pytest.raises(ConfigError, match="leave soft_labels out, or pass unlabeled=True") as error:
        Loader(flat, augment=PIXELS, soft_labels=(2, 0.1))
    assert "drop_field" not in str(error.value)
    with Loader(flat, augment=PIXELS, soft_labels=(2, 0.1), unlabeled=True) as loader:
        assert np.allclose(next(iter(loader))["soft_label"], 0.05)
    with Loader(flat, augment=PIXELS, unlabeled=True) as loader:
        assert [labels.tolist() for _, labels in loader] == [[-1]]
    with Loader(flat, augment=PIXELS, drop_field="label") as loader:
        assert [list(batch) for batch in loader] == [["image"]]
    # A batch with additional fields contains a label only if the samples have labels.
    with Loader(flat, views=[PIXELS, PIXELS]) as loader:
        assert [list(batch) for batch in loader] == [["views"]]


def test_a_label_below_zero_names_its_sample(folder: Path) -> None:
    with Loader(Source(folder, 0, -49), augment=PIXELS) as loader, pytest.raises(WarpfeedError) as error:
        next(iter(loader))
    assert "sample 1" in str(error.value) and "label -49 is negative" in str(error.value)
