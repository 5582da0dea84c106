"""Compares patches with Pillow and NumPy code in the sizes and the order of values that the image
processors of Qwen2-VL and SigLIP 2 use."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import warpfeed
from conftest import need
from warpfeed import Augment, ConfigError, Loader, Patches, WarpfeedError

Image, ImageOps = need("PIL.Image"), need("PIL.ImageOps")
SIZES = [(90, 61), (33, 120), (64, 64), (200, 40), (17, 23)]


class Photos:
    """A dataset of images. With `lists`, sample `n` is a list of `n % 3` images."""

    def __init__(self, lists: bool = False) -> None:
        self.lists = lists

    def __len__(self) -> int:
        return len(SIZES)

    def image(self, id: int) -> Any:
        width, height = SIZES[id % len(SIZES)]
        y, x = np.mgrid[:height, :width]
        return Image.fromarray(np.stack([x * 3 + id, y * 5, x ^ y], -1).astype(np.uint8))

    def file(self, id: int) -> bytes:
        file = io.BytesIO()
        self.image(id).save(file, "png")
        return file.getvalue()

    def __getitem__(self, id: int) -> dict[str, Any]:
        return {"photo.jpg": [self.file(id + n) for n in range(id % 3)] if self.lists else self.file(id)}


class One:
    def __init__(self, file: bytes) -> None:
        self.file = file

    def __len__(self) -> int:
        return 1

    def __getitem__(self, id: int) -> bytes:
        return self.file


def naive(layout: str, image: Any, grid: Any, side: int) -> Any:
    height, width = int(grid[1]) * side, int(grid[2]) * side
    filter = Image.Resampling.BICUBIC if layout == "qwen2_vl" else Image.Resampling.BILINEAR
    pixels = np.asarray(image.resize((width, height), filter))
    if layout == "naflex":
        cut = pixels.reshape(height // side, side, width // side, side, 3).transpose(0, 2, 1, 3, 4)
        return cut.reshape(-1, side * side * 3)
    cut = pixels.reshape(height // side // 2, 2, side, width // side // 2, 2, side, 3)
    cut = cut.transpose(0, 3, 1, 4, 6, 2, 5)[:, :, :, :, :, None].repeat(2, 5)
    return cut.reshape(-1, side * side * 6)


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("layout", ["qwen2_vl", "naflex"])
def test_patches_equal_pillow_and_numpy(layout: str, lists: bool) -> None:
    photos = Photos(lists)
    budget = {"min_pixels": 1024, "max_pixels": 4096} if layout == "qwen2_vl" else {"max_patches": 50}
    patches = Patches(layout, source_field="photo.jpg", patch=8, dtype="u8", images=2 if lists else None, **budget)
    loader = Loader(photos, batch_size=5, fields={"p": patches}, drop_field=["image", "label"], output="numpy")
    (batch,) = loader
    grids, images = batch["p.grid_thw"], [n % 3 if lists else 1 for n in range(5)]
    assert batch["p.images"].tolist() == images and len(grids) == sum(images)
    shown = [id + n for id, count in enumerate(images) for n in range(count)]
    expected = [naive(layout, photos.image(id), grid, 8) for id, grid in zip(shown, grids, strict=True)]
    assert [len(part) for part in expected] == [int(grid.prod()) for grid in grids]
    complete = np.concatenate(expected)
    assert batch["p"].shape == complete.shape
    assert np.abs(np.asarray(batch["p"], np.int16) - complete).max() <= 1
    lengths, longest = warpfeed.cu_seqlens(batch, "p")
    assert lengths.tolist() == np.cumsum([0, *map(len, expected)]).tolist() and longest == max(map(len, expected))
    assert lengths.dtype == np.int32 and int(batch["p.count"].sum()) == len(complete)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "rotated"])
def test_images_of_any_mode_equal_pillow(mode: str) -> None:
    """Gray is repeated in three channels, alpha is dropped, and the EXIF orientation is applied
    before the size is computed."""
    original = Photos().image(0)
    image = original if mode == "rotated" else original.convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(original.getchannel(0))
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    options = {"exif": exif} if mode == "rotated" else {}
    image.save(file, "JPEG" if mode in ("CMYK", "rotated") else "PNG", **options)
    stored = Image.open(io.BytesIO(file.getvalue()))
    upright = (ImageOps.exif_transpose(stored) or stored).convert("RGB")
    patches = Patches("naflex", patch=8, max_patches=60, dtype="u8")
    loader = Loader(One(file.getvalue()), fields={"p": patches}, drop_field=["image", "label"], output="numpy")
    (batch,) = loader
    expected = naive("naflex", upright, batch["p.grid_thw"][0], 8)
    assert (batch["p.grid_thw"][0, 1] > batch["p.grid_thw"][0, 2]) == (mode == "rotated")
    assert np.abs(np.asarray(batch["p"], np.int16) - expected).max() <= 1


def test_the_defaults_have_the_shapes_of_the_processors() -> None:
    for layout, grid, values in [("qwen2_vl", [1, 4, 6], 1176), ("naflex", [1, 13, 19], 768)]:
        options = {"fields": {"p": Patches(layout, source_field="photo.jpg")}, "drop_field": ["image", "label"]}
        (batch,) = Loader(Photos(), batch_size=1, subset=[0], output="numpy", **options)
        assert batch["p.grid_thw"][0].tolist() == grid and batch["p"].shape == (grid[1] * grid[2], values)
        assert batch["p"].dtype == np.float32 and -2.2 < batch["p"].min() < batch["p"].max() < 2.7


def test_bad_options_are_rejected() -> None:
    with pytest.raises(ConfigError, match="layout='qwen': expected one of 'qwen2_vl', 'naflex'"):
        Patches("qwen")
    with pytest.raises(ConfigError, match="Patches: patch=0: expected at least 1"):
        Patches(patch=0)
    for patches, text in [
        (Patches("naflex", source_field="photo.jpg", max_pixels=99), "max_pixels=99 is for qwen2_vl"),
        (Patches(source_field="photo.jpg", max_patches=99), "max_patches=99 is for naflex"),
    ]:
        with pytest.raises(WarpfeedError, match=text):
            Loader(Photos(), batch_size=1, fields={"p": patches}, drop_field=["image", "label"])
    with pytest.raises(ConfigError, match="augment has no effect"):
        Loader(
            Photos(), batch_size=1, fields={"p": Patches(source_field="photo.jpg")}, drop_field=["image", "label"],
            augment=Augment.train(32),
        )  # fmt: skip
