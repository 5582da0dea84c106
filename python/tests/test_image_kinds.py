"""Tests that 16-bit, float and transparent images keep their values in a ``DenseMap``, that a
one-channel image equals Pillow's ``convert("L")``, and that images of more than 8 bits are
converted only on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warpfeed
from conftest import need
from warpfeed import Augment, ConfigError, Decoder, DenseMap, Loader, WarpfeedError

Image = need("PIL.Image")

RANDOM = np.random.default_rng(5)
SIZE = (31, 23)
OPTIONS: dict[str, Any] = {"drop_field": ["label"], "output": "numpy", "augment": Augment.pass_through(SIZE)}


def saved(folder: Path, values: np.ndarray, name: str = "a.png") -> Path:
    Image.fromarray(values).save(folder / name)
    return folder


def field(data: Any, **options: Any) -> Any:
    (batch,) = Loader(data, **{**OPTIONS, **options})
    return batch["image"] if isinstance(batch, dict) else batch[0]


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_a_16_bit_scan_keeps_its_values(tmp_path: Path, name: str) -> None:
    values = RANDOM.integers(0, 4096, SIZE, np.uint16)
    saved(tmp_path, values, name)
    assert np.array_equal(field(tmp_path, fields={"image": DenseMap(image=True)}), values[None].astype(np.float32))
    one = field(tmp_path, fields={"image": DenseMap(1, image=True)}, layout="nchw")
    assert one.shape == (1, 1, *SIZE) and np.array_equal(one[0, 0], values)
    advice = "warpfeed.DenseMap reads its values unchanged, convert_to_u8=True keeps"
    with pytest.raises(WarpfeedError, match=f"16-bit (PNG|TIFF) .*{advice}"):
        field(tmp_path)
    assert np.array_equal(field(tmp_path, convert_to_u8=True)[0, :, :, 1], values >> 8)
    decoded = Decoder(augment=OPTIONS["augment"], output="numpy", convert_to_u8=True).decode([(tmp_path / name).read_bytes()])
    assert np.array_equal(decoded.images[0, :, :, 1], values >> 8)


def test_a_float_tiff_keeps_its_values(tmp_path: Path) -> None:
    values = RANDOM.normal(size=SIZE).astype(np.float32)
    saved(tmp_path, values, "a.tif")
    assert np.array_equal(field(tmp_path, fields={"image": DenseMap(image=True)})[0], values)
    with pytest.raises(WarpfeedError, match="a float TIFF .*warpfeed.DenseMap reads its values unchanged"):
        field(tmp_path)


def test_alpha_is_dropped_kept_or_blended_as_by_pillow(tmp_path: Path) -> None:
    values = RANDOM.integers(0, 256, (*SIZE, 4), np.uint8)
    saved(tmp_path, values)
    assert np.array_equal(field(tmp_path)[0], values[:, :, :3])
    assert np.array_equal(field(tmp_path, fields={"image": DenseMap(4, image=True)})[0], values)
    original = Image.fromarray(values)
    under = Image.new("RGB", original.size, (10, 200, 99))
    under.paste(original, mask=original.getchannel("A"))
    assert np.array_equal(field(tmp_path, background=(10, 200, 99))[0], np.asarray(under))


def test_one_channel_equals_pillow(tmp_path: Path, torch: Any) -> None:
    values = RANDOM.integers(0, 256, (*SIZE, 3), np.uint8)
    saved(tmp_path, values)
    expected = np.asarray(Image.fromarray(values).convert("L"))
    assert np.array_equal(field(tmp_path, channels=1)[0, :, :, 0], expected)
    tensor = field(tmp_path, channels=1, output="torch")
    assert tensor.shape == (1, 1, *SIZE) and np.array_equal(tensor[0, 0], expected)
    normal = field(tmp_path, channels=1, normalize=([0.5] * 3, [0.25] * 3), layout="nchw")
    assert np.allclose(normal[0, 0], (expected / 255 - 0.5) / 0.25, atol=1e-6)


def test_options_that_cannot_work_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, np.zeros(SIZE, np.uint8))
    shown = {"image": DenseMap(image=True)}
    for options, message in [
        ({"channels": 4}, "channels=4: expected 3 or 1; warpfeed.DenseMap"),
        ({"background": (1, 2, 300)}, "background="),
        ({"fields": {"image": DenseMap(source_field="x", image=True)}}, "set one of them"),
        ({"fields": shown, "augment": Augment.train(8).grayscale(0.5)}, "as stored, so grayscale"),
        ({"fields": shown, "normalize": "imagenet"}, "normalize changes images"),
    ]:
        with pytest.raises((ConfigError, TypeError, ValueError), match=message):
            field(tmp_path, **options)
    with pytest.raises(WarpfeedError, match=r"has 1 channels, but the map has 3: use DenseMap\(1\)"):
        field(tmp_path, fields={"image": DenseMap(3, image=True)})
    assert eval(repr(DenseMap(3, image=True))) == DenseMap(3, image=True)
    assert eval(repr(DenseMap(source_field="x"))) == DenseMap(source_field="x")


def test_packing_converts_deep_images_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    deep = RANDOM.integers(0, 65536, SIZE, np.uint16)
    clear = np.zeros((*SIZE, 4), np.uint8)
    saved(tmp_path / "set", deep, "a.png")
    saved(tmp_path / "set", clear, "b.png")
    created, options = tmp_path / "made.lmdb", {"num_workers": 1, "force": True}
    report = warpfeed.pack(tmp_path / "set", created, raw=SIZE, **options)
    ((number, key, reason),) = report["not_recoded"]
    assert (report["raw"], number, key) == (1, 0, "a") and "convert_to_u8=True keeps the upper 8" in reason, reason
    report = warpfeed.pack(tmp_path / "set", created, raw=SIZE, convert_to_u8=True, background=(7, 8, 9), **options)
    assert report["raw"] == 2 and report["not_recoded"] == []
    images = field(created, batch_size=2)
    assert np.array_equal(images[0, :, :, 0], deep >> 8)
    assert (images[1] == (7, 8, 9)).all()
    with pytest.raises(ConfigError, match="convert_to_u8=True has no effect, because no image is decoded"):
        warpfeed.pack(tmp_path / "set", created, convert_to_u8=True, **options)
