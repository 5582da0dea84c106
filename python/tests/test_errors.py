"""Tests that errors say where they occurred and what to use instead of an invalid option, and that
an exception from a Python source becomes their ``__cause__``."""

from __future__ import annotations

import ctypes
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warpfeed
from conftest import Images, bmp, ran
from warpfeed import Augment, ConfigError, Loader, Mask, NdArray, Ragged, WarpfeedError


@pytest.fixture
def damaged(mini: str, tmp_path: Path) -> tuple[str, Path]:
    """Copies the dataset, truncates one image, and returns the paths of both."""
    shutil.copytree(mini, tmp_path / "set")
    original = sorted((tmp_path / "set").rglob("*.jpg"))[5]
    original.write_bytes(original.read_bytes()[:200])
    return str(tmp_path / "set"), original


def test_a_bad_file_fails_with_its_name(damaged: tuple[str, Path]) -> None:
    path, original = damaged
    loader = Loader(path, batch_size=4, augment=Augment.train(32), output="numpy")
    with pytest.raises(WarpfeedError) as raised:
        list(loader)
    e = raised.value
    assert (e.kind, e.sample, e.path) == ("decode", 5, str(original)) and original.stem in (e.key or "")
    assert str(e).startswith(f"sample 5 ({e.key}): {original}: decode: ")
    with pytest.raises(WarpfeedError):
        list(loader)


def test_bad_files_are_skipped_listed_and_logged(damaged: tuple[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    path, original = damaged
    with caplog.at_level(logging.WARNING, "warpfeed"):
        loader = Loader(path, batch_size=4, augment=Augment.train(32), output="numpy", max_skipped=2)
        valid = [flag for batch in loader for flag in batch.valid]
    assert len(valid) == 64 and valid.count(False) == 1 and not valid[5]
    [(epoch, batch, error)] = loader.sample_errors()
    assert (epoch, batch) == (0, 1) and isinstance(error, WarpfeedError) and error.path == str(original)
    assert any("skipped" in record.message and str(original) in record.message for record in caplog.records)
    with pytest.raises(WarpfeedError) as raised:
        list(Loader(path, batch_size=4, augment=Augment.train(32), output="numpy", max_skipped=0))
    assert raised.value.kind == "too_many_skipped"


def test_damage_is_counted_named_and_an_error_if_strict(
    mini: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(mini, tmp_path / "set")
    original = sorted((tmp_path / "set").rglob("*.jpg"))[5]
    jpeg = bytearray(original.read_bytes())
    offset = jpeg.rindex(b"\xff\xda") + 20
    jpeg[offset : offset + 2] = b"\xff\xd4"  # an unexpected restart marker
    original.write_bytes(jpeg)
    options: dict[str, Any] = {"batch_size": 4, "augment": Augment.train(32), "output": "numpy", "epochs": 0}
    with caplog.at_level(logging.WARNING, "warpfeed"):
        loader = Loader(tmp_path / "set", **options)
        assert sum(len(batch.images) for batch in loader) == 64 and loader.stats()["damaged_images"] == 1
        list(loader)
        assert loader.stats()["damaged_images"] == 2, "damage must be counted each time an image is decoded"
        loader.close()
    named = [record for record in caplog.records if "damaged" in record.message and str(original) in record.message]
    assert len(named) == 1, caplog.records
    with pytest.raises(WarpfeedError, match="jpeg data is damaged in MCU .* strict") as raised:
        list(Loader(tmp_path / "set", strict=True, **options))
    assert (raised.value.kind, raised.value.sample, raised.value.path) == ("decode", 5, str(original))
    decoder = warpfeed.Decoder(augment=Augment.eval(40, 32), output="numpy", strict=True)
    assert "strict" in str(decoder.decode([bytes(jpeg)]).errors[0])
    decoder.close()


def test_a_missing_path_or_device_fails_on_opening(tmp_path: Path) -> None:
    with pytest.raises(WarpfeedError) as raised:
        Loader(tmp_path / "nothing")
    assert raised.value.kind == "io" and raised.value.errno == 2 and raised.value.path == str(tmp_path / "nothing")
    with pytest.raises(WarpfeedError, match="cuda: no NVIDIA driver|device"):
        Loader(tmp_path, device="cuda:999", output="dlpack")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"augment": len}, TypeError, "expected warpfeed.Augment; use image_transform=f for a Python function on each image"),
        ({"collate_fn": list}, TypeError, "fields=\\{name"),
        ({"batch_sampler": [1]}, TypeError, "subset, weights, balanced or sampler"),
        ({"persistent_workers": True}, TypeError, "workers live as long"),
        ({"bach_size": 3}, TypeError, "no argument 'bach_size'; did you mean 'batch_size'"),
        ({"dtype": "int4"}, ValueError, "dtype='int4': expected one of 'u8'"),
        ({"layout": "chwn"}, ValueError, "layout='chwn'"),
        ({"layout": "Nhwc"}, ValueError, "layout='Nhwc': expected one of 'channels_last', 'nhwc', 'nchw'"),
        ({"dtype": "F16"}, ValueError, "dtype='F16': expected one of 'u8', 'f16'"),
        ({"output": "tf"}, ValueError, "output='tf'"),
        ({"trace": ("t.json", (1, 2))}, TypeError, "trace=.*: expected a path, or .path, .wait, warmup, active, repeat"),
        ({"device": "tpu"}, ValueError, "device='tpu'"),
        ({"normalize": "cifar"}, ValueError, "normalize='cifar'"),
        ({"normalize": "imagenet", "dtype": "u8"}, WarpfeedError, "normalize needs dtype f32, f16 or bf16"),
        ({"batch_size": 0}, WarpfeedError, "batch_size=0"),
        ({"batch_size": 8, "global_batch_size": 8}, ValueError, "set one of them"),
        ({"drop_last": True, "last_batch": "pad"}, ValueError, "set one of them"),
        ({"last_batch": "loop"}, ValueError, "last_batch='loop': expected one of 'keep', 'drop', 'pad'"),
        ({"shuffle": 3, "seed": 4}, TypeError, "shuffle=3: expected True or False; pass shuffle=True, seed=3"),
        ({"rank": 1}, ValueError, "set both"),
        ({"rank": 2, "world_size": 2}, WarpfeedError, "rank 2 is not less than the world size 2"),
        ({"augment": Augment.eval(200, 224)}, WarpfeedError, "shorter side is 200"),
        ({"augment": Augment.eval(256, 224).ratio(1, 1)}, WarpfeedError, "ratio needs .* of Augment\\.train"),
        ({"subset": [64]}, WarpfeedError, "subset: entry 0 is sample 64"),
        ({"balanced": True, "weights": [1] * 64}, WarpfeedError, "each decides the order"),
        ({"memory_limit": 1000}, WarpfeedError, "memory"),
        ({"resume": {"version": 9}}, WarpfeedError, "version 9"),
        ({"resume": {"epoch": "x"}}, ValueError, 'this is not a result of state_dict\\(\\): "epoch": "x": invalid type'),
        ({"resume": {}}, ValueError, "the version, epoch or batch is missing"),
        ({"resume": {"model": {}, "loader": {"version": 1}}}, ValueError, "pass the whole checkpoint as it was saved"),
        ({"resume": '{"version": 1, "epo'}, TypeError, "resume='{\"version\": 1, \"epo': .*; parse JSON with json.loads"),
        ({"resume": 3}, TypeError, "resume=3: expected a result of state_dict"),
        ({"resume": {"epoch": object()}}, TypeError, "resume contains a value that is not JSON.* object"),
        ({"resume": {(1, 2): 3}}, TypeError, "resume contains a value that is not JSON.* tuple"),
        ({"fields": {"emb": len}}, TypeError, "'emb' is <built-in function len>; expected a field type, such as warpfeed.NdArray"),
    ],
)  # fmt: skip
def test_an_invalid_option_is_refused_with_the_reason(mini: str, options: dict, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        Loader(mini, **{"output": "numpy", **options})


def test_messages_use_python_names(mini: str, tmp_path: Path) -> None:
    if not has_driver():
        with pytest.raises(WarpfeedError, match='; use device="cpu" for batches in host memory'):
            Loader(mini, device="cuda", output="dlpack")
    passed = Loader(mini, batch_size=16, augment=Augment.pass_through(8, 8), output="numpy")
    with pytest.raises(WarpfeedError, match="but Augment.pass_through expects 8x8"):
        list(passed)
    # A new process has not opened any other datasets.
    for name in ("train/b", "train/z", "val/z"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "0.bmp").write_bytes(bmp(8, 8, (0, 0, 0)))
    output = ran(
        """
        import logging, sys, warpfeed
        logging.basicConfig(stream=sys.stdout)
        for path in sys.argv[1:]:
            warpfeed.Loader(path, output="numpy").close()
        """,
        str(tmp_path / "train"), str(tmp_path / "val"),
    )  # fmt: skip
    assert "pass the same class list to each loader, with classes=[...] or classes_file=" in output
    assert "::" not in output


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def test_augment_begins_with_a_crop_and_does_not_change() -> None:
    with pytest.raises(TypeError, match="begin with Augment.train"):
        Augment()
    with pytest.raises(AttributeError, match="Augment is immutable"):
        Augment.train(32)._calls = ()


def test_a_python_source_gives_bytes_pairs_or_dicts() -> None:
    for give in ["bytes", "pair", "dict"]:
        loader = Loader(
            Images(40, give), batch_size=16, augment=Augment.resize(8, 8), output="numpy", unlabeled=True
        )
        seen = {}
        for batch in loader:
            for id, image, label in zip(batch.ids, *batch, strict=True):
                seen[id] = (image[0, 0].tolist(), int(label))
        expected = {i: ([i % 256, i * 7 % 256, i * 31 % 256], -1 if give == "bytes" else i % 2) for i in range(40)}
        assert seen == expected
    assert loader.classes == ["even", "odd"] and loader.dataset.class_to_idx == {"even": 0, "odd": 1}


def test_an_exception_of_a_python_source_is_the_cause() -> None:
    loader = Loader(Images(40, "bad"), batch_size=16, augment=Augment.resize(8, 8), output="numpy")
    with pytest.raises(WarpfeedError, match="sample 7: source: ValueError: the seventh is missing") as raised:
        list(loader)
    assert raised.value.sample == 7 and isinstance(raised.value.__cause__, ValueError)
    assert raised.value.__cause__.__traceback__ is not None
    with pytest.raises(WarpfeedError, match="__getitem__ returned list; expected the bytes of an encoded image"):
        list(Loader(Images(4, "decoded"), batch_size=4, output="numpy"))
    with pytest.raises(TypeError, match="has no __len__"):
        Loader(iter([]), output="numpy")
    with pytest.raises(TypeError, match="a list must describe a mixture"):
        Loader([bmp(8, 8, (0, 0, 0))], output="numpy")


class Noted(Images):
    """A dataset that raises an exception with a note."""

    def __getitem__(self, index: int) -> object:
        if index == 7:
            e = ValueError("the seventh is missing")
            e.__notes__ = ["look in the cellar"]  # type: ignore[attr-defined]
            raise e
        return super().__getitem__(index)


@pytest.mark.parametrize("how", ["alone", "Concat", "mixture"])
def test_an_exception_in_a_nested_dataset_keeps_its_notes(how: str) -> None:
    noted, plain = Noted(), Images()
    data: Any = {"alone": noted, "Concat": warpfeed.Concat([plain, noted]), "mixture": [(plain, 0.5), (noted, 0.5)]}[how]
    loader = Loader(data, batch_size=16, augment=Augment.resize(8, 8), output="numpy", retries=0)
    with pytest.raises(WarpfeedError, match="ValueError: the seventh is missing") as raised:
        for _ in range(20):
            list(loader)
    assert raised.value.sample == (7 if how == "alone" else 47)
    assert isinstance(raised.value.__cause__, ValueError)
    assert raised.value.__cause__.__notes__ == ["look in the cellar"]  # type: ignore[attr-defined]
    assert raised.value.__cause__.__traceback__ is not None


class Arrays:
    def __init__(self, give: Any) -> None:
        self.give = give

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.give(index)


def pixels(index: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(index).integers(0, 256, (8, 6, 3), np.uint8)


def test_arrays_of_a_python_source_are_pixels_and_fields() -> None:
    options: dict[str, Any] = {"batch_size": 4, "augment": Augment.pass_through((8, 6)), "output": "numpy"}
    expected = np.stack([pixels(index) for index in range(4)])
    # Arrays in any memory order are accepted. The second array is in Fortran order.
    for give in (lambda i: (pixels(i), i), lambda i: (np.asfortranarray(pixels(i)), i), lambda i: {"image": pixels(i), "label": i}):
        [(images, labels)] = Loader(Arrays(give), **options)
        assert np.array_equal(images, expected) and labels.tolist() == [0, 1, 2, 3]

    def with_fields(index: int) -> dict[str, Any]:
        half = np.arange(3, dtype=np.float16) + index
        return {"image": pixels(index), "label": index, "f": half, "d": half.astype(">f8"), "i": np.int64(index),
                "mask": (pixels(index)[..., 0] > 9), "many": np.arange(index, dtype=np.int16)}  # fmt: skip

    fields = {"f": NdArray("f32", [3]), "d": NdArray("f32", [3]), "i": NdArray("i64"), "mask": Mask("u8"), "many": Ragged("i16", [], 4)}
    [batch] = Loader(Arrays(with_fields), fields=fields, **options)
    assert np.array_equal(batch["image"], expected)
    for name in "fd":
        assert np.array_equal(batch[name], np.arange(3) + np.arange(4.0)[:, None])
    assert batch["i"].tolist() == [0, 1, 2, 3] and batch["many.count"].tolist() == [0, 1, 2, 3]
    assert np.array_equal(batch["mask"], expected[..., 0] > 9) and batch["many"][3].tolist() == [0, 1, 2, 0]
    decoder = warpfeed.Decoder(augment=Augment.pass_through((8, 6)), output="numpy")
    assert np.array_equal(decoder.decode([pixels(2), pixels(3)]).images, expected[2:])
    assert "type float32 and shape (8, 6, 3)" in str(decoder.decode([pixels(0).astype(np.float32)]).errors[0])
    decoder.close()


@pytest.mark.parametrize(
    ("give", "text"),
    [
        (lambda i: pixels(i).astype(np.float32), "sample 0 .*the image is an array of type float32 and shape .8, 6, 3.: expected uint8 and .height, width, 3.*; multiply"),
        (lambda i: (pixels(i).transpose(2, 0, 1), 0), "sample 0 .*.3, 8, 6.*height, width, 3"),
        (lambda i: pixels(i)[:, :, :2], "sample 0 .*.8, 6, 2.*height, width, 3"),
        (lambda i: np.zeros(9, np.float32), "__getitem__ returned ndarray; expected .* a uint8 array of shape .height, width, 3."),
        (lambda i: np.array(["a"]), "__getitem__ returned ndarray; expected the bytes"),
        (lambda i: np.zeros((8, 6, 3), np.complex64), "__getitem__ returned ndarray; expected the bytes"),
        (lambda i: (pixels(i), i, i), "__getitem__ returned a tuple of length 3"),
    ],
)  # fmt: skip
def test_an_array_that_is_no_image_names_the_input(give: Any, text: str) -> None:
    with pytest.raises(WarpfeedError, match=text) as raised:
        list(Loader(Arrays(give), batch_size=4, augment=Augment.resize(8, 8), unlabeled=True, output="numpy"))
    assert raised.value.sample == 0


def test_bytes_of_an_array_field_are_type_checked() -> None:
    def give(index: int) -> dict[str, Any]:
        return {"image": pixels(index), "label": 0, "emb": np.array([-1, index], np.int8)}

    options: dict[str, Any] = {"batch_size": 4, "augment": Augment.pass_through((8, 6)), "output": "numpy"}
    [batch] = Loader(Arrays(give), fields={"emb": NdArray("i16", [2])}, **options)
    assert batch["emb"].tolist() == [[-1, 0], [-1, 1], [-1, 2], [-1, 3]]
    with pytest.raises(WarpfeedError, match="sample 0 .*emb"):
        list(Loader(Arrays(give), fields={"emb": NdArray("u8", [2])}, **options))
    # Eight bytes must not be mistaken for a 64-bit integer.
    [batch] = Loader(
        Arrays(lambda i: {"image": pixels(i), "label": 0, "ids": np.arange(8, dtype=np.uint8)}),
        fields={"ids": Ragged("i64", [], 8)}, **options,
    )  # fmt: skip
    assert batch["ids"][0].tolist() == list(range(8)) and batch["ids.count"].tolist() == [8] * 4


def test_missing_labels_fail_with_advice(tmp_path: Path) -> None:
    (tmp_path / "a.bmp").write_bytes(bmp(8, 8, (1, 2, 3)))
    options = {"augment": Augment.resize(8, 8), "output": "numpy"}
    with pytest.raises(WarpfeedError, match="unlabeled"):
        list(Loader(tmp_path, **options))
    [(images, labels)] = Loader(tmp_path, unlabeled=True, **options)
    assert labels.tolist() == [-1] and images[0, 0, 0].tolist() == [1, 2, 3]
    [batch] = Loader(tmp_path, drop_field=["label"], **options)
    assert list(batch) == ["image"]


def test_without_torch_batches_are_numpy_arrays(mini: str) -> None:
    out = ran(
        """
        import sys
        sys.modules["torch"] = None  # importing it is an ImportError
        import numpy, warpfeed
        for images, labels in warpfeed.Loader(sys.argv[1], batch_size=16, augment=warpfeed.Augment.train(32)):
            assert type(images) is numpy.ndarray and images.shape == (16, 32, 32, 3), images
        try:
            warpfeed.Loader(sys.argv[1], output="torch")
        except ValueError as e:
            print(e)
        try:
            warpfeed.Loader(sys.argv[1], device="cuda")
        except ValueError as e:
            print(e)
        """,
        mini,
    )
    missing = "device='cuda': output='numpy' is the default, because torch is not installed; use output='torch' or 'dlpack'"
    assert out == f"output='torch': torch cannot be imported; install it, or pass output='numpy'\n{missing}\n"


def test_the_package_contains_the_command_line_tool(mini: str, tmp_path: Path) -> None:
    def program(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "warpfeed", *args], capture_output=True, text=True, **options)

    assert "64" in program("inspect", mini).stdout
    assert program("pack", mini, str(tmp_path / "x.tar")).returncode == 0
    assert len(Loader(tmp_path / "x.tar", batch_size=16, output="numpy")) == 4
    invalid = program("bogus")
    assert invalid.returncode == 2 and "unrecognized subcommand" in invalid.stderr
    missing = program("verify", str(tmp_path / "none"))
    assert missing.returncode == 1 and missing.stderr.startswith("warpfeed: ")
    script = Path(sys.executable).with_name("warpfeed")
    if script.exists():
        assert subprocess.run([script, "--version"], capture_output=True, text=True).stdout.startswith("warpfeed 0.")


def test_stats_verdict_plan_and_trace_describe_a_run(packed: str, tmp_path: Path) -> None:
    import json

    loader = Loader(packed, batch_size=4, augment=Augment.train(32), output="numpy", trace=tmp_path / "t.json")
    list(loader)
    stats = loader.stats()
    assert stats["batches"] == 16 and stats["samples"] == 64 and "samples/s" in str(stats)
    assert str(loader.verdict()) and loader.memory_plan()["slots"] >= 4 and "slots of" in str(loader.memory_plan())
    loader.close()
    assert json.loads((tmp_path / "t.json").read_text())


def test_the_help_of_stats_describes_all_keys(mini: str) -> None:
    with Loader(mini, augment=Augment.train(32), output="numpy") as loader:
        assert not [key for key in loader.stats() if f"``{key}``" not in (warpfeed.Stats.__doc__ or "")]


def test_warnings_are_logged_before_the_error_that_they_explain(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,caption\n1,a\n2\n")
    options: dict[str, Any] = {"drop_field": ["image", "label"], "batch_size": 1}
    with pytest.raises(ConfigError, match="did you mean \"age\""):
        Loader(path, fields={"agee": NdArray("f32", [])}, **options)
    assert any("1 malformed row" in record.message for record in caplog.records)
    caplog.clear()
    loader = Loader(path, fields={"age": NdArray("f32", [])}, max_skipped=9, **options)
    assert any("1 malformed row" in record.message for record in caplog.records), "logged too late"
    caplog.clear()
    with pytest.raises(WarpfeedError, match="all 1 samples"):
        list(loader)
    assert any("skipped: sample 1" in record.message for record in caplog.records)


UNREACHABLE = """
import logging
import os
import warpfeed

class Ends(logging.Handler):
    def emit(self, record):
        if "request failed 4 times" in record.getMessage():
            print("logged while it waits:", record.getMessage(), flush=True)
            os._exit(0)

logging.getLogger("warpfeed").addHandler(Ends())
warpfeed.Loader("s3://bucket/train")
"""


def test_a_silent_store_is_reported_during_opening() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    assert "logged while it waits" in ran(UNREACHABLE, AWS_ENDPOINT_URL="http://127.0.0.1:1", **keys)


def test_the_program_prints_warnings(mini: str, tmp_path: Path) -> None:
    shutil.copytree(mini, tmp_path / "set")
    (tmp_path / "set" / "striped-cross" / "notes.csv").write_text("x")
    command = [sys.executable, "-m", "warpfeed", "inspect", str(tmp_path / "set")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "warpfeed: warning: " in done.stderr and "ignored 1 other file (.csv)" in done.stderr
