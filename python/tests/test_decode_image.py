"""Compares ``decode_image`` with the pixels of a loader, for several formats and every EXIF
orientation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import warpfeed
from conftest import ROOT
from warpfeed import Augment, Loader, WarpfeedError

FIXTURES = ROOT / "tests" / "fixtures"
ORIENTATIONS = [f"orientation/{i}.jpg" for i in range(1, 9)]
FORMATS = ["images/cmyk.tif", "images/inside.gif", "images/bits_565.bmp", "images/palette.tif.png"]


@pytest.mark.parametrize("name", ORIENTATIONS + FORMATS)
def test_the_pixels_equal_those_of_a_loader(name: str, tmp_path: Path) -> None:
    encoded = (FIXTURES / name).read_bytes()
    (tmp_path / Path(name).name).write_bytes(encoded)
    loader = Loader(tmp_path, augment=Augment.pass_through((8, 8)), drop_field=["label"], output="numpy")
    expected = loader.sample(0)["image"]
    actual = warpfeed.decode_image(encoded)
    assert actual.dtype == np.uint8 and actual.flags["C_CONTIGUOUS"] and np.array_equal(actual, expected)
    # The array must be writable, and a change must not affect later calls.
    actual[:] = 0
    assert np.array_equal(warpfeed.decode_image(memoryview(encoded)), expected)


def test_bad_input_raises_an_error_that_names_it() -> None:
    path = FIXTURES / "orientation" / "1.jpg"
    with pytest.raises(TypeError, match="data is a value of type PosixPath: expected the bytes of an encoded image"):
        warpfeed.decode_image(path)
    with pytest.raises(WarpfeedError, match="jpeg ends at byte"):
        warpfeed.decode_image(path.read_bytes()[:-40])
    with pytest.raises(WarpfeedError, match="pages"):
        warpfeed.decode_image((FIXTURES / "images" / "pages.tif").read_bytes())
    assert warpfeed.decode_image(path.read_bytes()).ndim == 3
