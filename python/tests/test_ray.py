"""Tests that ``warpfeed.ray`` passes absolute paths to its tasks, which run in other folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from warpfeed import Clips, Coco, Concat, LeRobot, PackedTokens, TableOptions, Tokens, Voc, Yolo, ray


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
    for data in (Clips("set"), LeRobot("set"), PackedTokens("set", 8, eos_token_id=0), Tokens("set", 8)):
        assert ray._absolute(data).path == os.path.join(cwd, "set")
    absolute = TableOptions(root=os.path.join(cwd, "set"), label="x")
    assert ray._absolute(TableOptions(root=Path("set"), label="x")) == absolute
    source = [b"1"]
    assert ray._absolute(source) is source


def test_paths_in_options_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[Any] = []
    task = SimpleNamespace(remote=lambda *arguments: tasks.append(arguments))
    cluster = SimpleNamespace(
        is_initialized=lambda: True,
        remote=lambda _: SimpleNamespace(options=lambda **_: task),
        put=lambda data: data,
        wait=lambda pending, num_returns: (pending[:1], pending[1:]),
        get=lambda error: error,
    )
    monkeypatch.setitem(sys.modules, "ray", cluster)
    monkeypatch.setattr(ray, "merge", lambda target, **_: {"target": target})
    monkeypatch.chdir(tmp_path)
    cwd = os.getcwd()
    table = TableOptions(root=Path("set"))
    merged = ray.pack("train", "packed/x.tar", parts=1, masks="masks", classes_file="names.txt", table=table, shard_size=9)
    target = os.path.join(cwd, "packed/x.tar")
    assert merged == {"target": target}
    [(data, packed, part, options)] = tasks
    assert (data, packed, part) == (os.path.join(cwd, "train"), target, (0, 1))
    # A path in `masks` is relative to the parent of the image folder.
    assert options["masks"] == "masks" and options["shard_size"] == 9
    assert options["classes_file"] == os.path.join(cwd, "names.txt")
    assert options["table"] == TableOptions(root=os.path.join(cwd, "set"))
