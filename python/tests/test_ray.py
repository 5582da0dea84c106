"""Tests that ``warpfeed.ray`` passes absolute paths to its tasks, which run in other folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from warpfeed import Coco, Concat, TableOptions, Voc, Yolo, ray


def test_all_paths_of_a_dataset_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cwd = os.getcwd()
    for data in ("train", Path("train")):
        assert ray._absolute(data) == os.path.join(cwd, "train")
    assert ray._absolute("s3://bucket/train") == "s3://bucket/train"
    coco = ray._absolute(Coco(Path("x.json"), Path("images")))
    assert coco == Coco(os.path.join(cwd, "x.json"), os.path.join(cwd, "images"))
    assert ray._absolute(Coco("x.json")).images is None
    parts = ray._absolute(Concat([Voc(Path("voc")), Yolo("yolo", "val")], keep_labels=True))
    assert parts == Concat([Voc(os.path.join(cwd, "voc")), Yolo(os.path.join(cwd, "yolo"), "val")], keep_labels=True)
    absolute = TableOptions(root=os.path.join(cwd, "set"), label="x")
    assert ray._absolute(TableOptions(root=Path("set"), label="x")) == absolute
    source = [b"1"]
    assert ray._absolute(source) is source
