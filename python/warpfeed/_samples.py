"""Converts the samples of Python datasets, and the images of requests, to values that the extension
module reads: bytes, arrays, paths and JSON."""

from __future__ import annotations

import io
import os
import struct
from typing import Any

__all__ = ["field", "frames", "image", "mixture", "requested_image"]

_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")

#: Pillow modes with 8 bits per channel or less, which can be converted to RGB.
_MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
#: Modes with a channel for transparency.
_TRANSPARENT = ("LA", "La", "PA", "RGBA", "RGBa")
#: The EXIF tag for the orientation.
_ORIENTATION = 0x0112


def mixture(parts: Any) -> list[tuple[Any, Any]]:
    """Returns `parts` with tuples as pairs. Raises a TypeError if `parts` is not a list of
    (dataset, proportion) pairs, but for example of image paths and labels."""
    if not (parts and all(isinstance(part, (list, tuple)) and len(part) == 2 for part in parts)):
        raise TypeError(
            "a list must describe a mixture of datasets, as [(data, proportion), ...]. To join datasets, use "
            "Concat([a, b]); for samples from Python, use an object with __len__ and __getitem__"
        )
    for first, _ in parts:
        if _is_image(first):
            first_text = repr(first) if isinstance(first, (str, os.PathLike)) else f"an image ({type(first).__name__})"
            raise TypeError(
                f"a list must describe a mixture of datasets, as [(data, proportion), ...], but {first_text} is a single "
                "image. For images with labels, pass a table, such as a CSV with the columns path and label, or an object "
                "whose __getitem__(i) returns (image, label)"
            )
    return [tuple(part) for part in parts]


def _is_image(value: Any) -> bool:
    """Returns whether `value` is an image or an image path, rather than a dataset."""
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value).lower().endswith(_SUFFIXES) and not os.path.isdir(value)
    # An array with four axes is a dataset.
    return isinstance(value, (bytes, bytearray)) or _is_pillow_image(value) or getattr(value, "ndim", 0) in (2, 3)


def image(value: Any) -> Any:
    """Converts an image to bytes, an array (height, width, 3), or a path.

    Most Pillow images are converted to arrays. Images with transparency or an EXIF rotation are
    encoded as PNG: the loader must blend them with ``background``, and apply the rotation to the
    image and its annotations.
    """
    if isinstance(value, (bytes, bytearray, memoryview, str, os.PathLike)):
        return value
    if _is_tensor(value):
        return _tensor_to_array(value)
    if _is_pillow_image(value):
        import numpy as np

        if value.mode not in _MODES:
            raise TypeError(f"unsupported Pillow mode {value.mode!r}; expected one of {', '.join(_MODES)}")
        is_transparent, exif = _is_transparent(value), _exif_rotation(value)
        if is_transparent or exif:
            png = io.BytesIO()
            value.convert("RGBA" if is_transparent else "RGB").save(png, "PNG", compress_level=0, exif=exif)
            return png.getvalue()
        return np.asarray(value if value.mode == "RGB" else value.convert("RGB"))
    shape: tuple[int, ...] = getattr(value, "shape", ())
    if str(getattr(value, "dtype", "")) == "uint8" and (len(shape) == 2 or len(shape) == 3 and shape[2] == 1):
        return value.reshape(shape[0], shape[1], 1).repeat(3, 2)
    return value


def frames(value: Any, is_image: bool) -> list[Any] | None:
    """Returns the images of a clip, or None if `value` is not a clip. A clip is a list or tuple of
    images or, if the field has the name of an image (`is_image`), an array with an additional first
    axis. An empty list, or a list of arrays or paths, is a clip only with `is_image`."""
    if isinstance(value, (list, tuple)):
        if not value:
            return [] if is_image else None
        is_encoded = isinstance(value[0], (bytes, bytearray, memoryview)) or _is_pillow_image(value[0])
        is_pixels = isinstance(value[0], (str, os.PathLike)) or getattr(value[0], "ndim", 0) in (2, 3)
        return list(value) if is_encoded or (is_image and is_pixels) else None
    return list(value) if is_image and getattr(value, "ndim", 0) == 4 else None


def requested_image(value: Any) -> Any:
    """Converts an image of a request to bytes or an array. Rejects paths, because a server must not
    read paths that its clients send."""
    expected = f"expected the bytes of an encoded image, got {type(value).__name__}"
    if isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{expected}; pass pathlib.Path(image).read_bytes()")
    # `mmap` objects also have `read`, but are accepted as buffers.
    if hasattr(value, "read") and not _has_buffer(value):
        raise TypeError(f"{expected}; pass image.read()")
    return image(value)


def _has_buffer(value: Any) -> bool:
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def field(value: Any) -> Any:
    """Converts a field other than an image to bytes, an array or a path. Numbers, lists and dicts
    become JSON as a ``str``, or an array if they contain NaN or infinity."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (int, float, list, tuple, dict)):
        return _json(value)
    if _is_tensor(value):
        return value.detach().cpu().numpy()
    if _is_pillow_image(value):
        import numpy as np

        return np.asarray(value)
    return value


def _json(value: Any) -> Any:
    """Converts a value to JSON as text. A value that contains NaN or infinity, which JSON cannot
    represent, becomes an array."""
    import json

    def to_plain(element: Any) -> Any:
        if hasattr(element, "tolist"):
            return element.tolist()
        raise TypeError(
            f"cannot convert {type(element).__name__} inside {type(value).__name__}; expected numbers, strings, and "
            "lists of them"
        )

    try:
        return json.dumps(value, allow_nan=False, default=to_plain)
    except ValueError:
        import numpy as np

        return np.asarray(value, np.float64)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "permute")


def _is_pillow_image(value: Any) -> bool:
    return hasattr(value, "getbands") and hasattr(value, "convert")


def _is_transparent(value: Any) -> bool:
    """Returns whether a Pillow image has an alpha channel, a transparent color, or a palette with
    alpha."""
    palette = getattr(value, "palette", None)
    return value.mode in _TRANSPARENT or "transparency" in value.info or str(getattr(palette, "mode", "")).endswith("A")


def _exif_rotation(value: Any) -> bytes:
    """Returns EXIF data that contains only the orientation, or empty bytes if the image needs no
    rotation."""
    # Loading may already rotate the image.
    value.load()
    if not value.info.get("exif"):
        return b""
    orientation = value.getexif().get(_ORIENTATION, 1)
    if orientation not in range(2, 9):
        return b""
    # A TIFF header, followed by an IFD with a single 16-bit entry.
    return struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, _ORIENTATION, 3, 1, orientation, 0, 0)


def _tensor_to_array(value: Any) -> Any:
    """Converts a tensor (3, height, width), (1, height, width) or (height, width)."""
    shape, dtype = tuple(value.shape), str(value.dtype)
    if dtype != "torch.uint8":
        raise TypeError(
            f"a tensor of type {dtype}; expected uint8 with values from 0 to 255: leave out ToTensor() and Normalize(), "
            "and set the loader's dtype and normalize instead"
        )
    if len(shape) == 2:
        value = value[None]
    elif len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(
            f"a tensor of shape {shape}; expected (3, height, width), (1, height, width) or (height, width)"
        )
    return value.detach().cpu().expand(3, -1, -1).permute(1, 2, 0).numpy()
