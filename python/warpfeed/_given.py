"""Values that a Python dataset gives, as bytes, arrays or paths for the native part."""

from __future__ import annotations

import io
import os
import struct
from typing import Any

__all__ = ["asked", "field", "mixture", "image"]

#: Endings of the names of images.
_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")

#: Modes of Pillow's images that convert to RGB by definition. Others have more than 8 bits.
_MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
#: Modes with a channel of their own for transparency.
_TRANSPARENT = ("LA", "La", "PA", "RGBA", "RGBa")
#: The EXIF tag.
_ORIENTATION = 0x0112


def mixture(parts: Any) -> list[tuple[Any, Any]]:
    """The datasets and shares of a list.

    Raises:
        TypeError: for a list of something else, such as paths of images with their labels.
    """
    if not (parts and all(isinstance(part, (list, tuple)) and len(part) == 2 for part in parts)):
        raise TypeError(
            "a list is a mixture of datasets: [(data, share), ...]. Concat([a, b]) joins them one after the other, "
            "and samples of your own come from an object with __len__ and __getitem__"
        )
    for first, _ in parts:
        if _is_image(first):
            shown = repr(first) if isinstance(first, (str, os.PathLike)) else f"an image ({type(first).__name__})"
            raise TypeError(
                f"a list is a mixture of datasets, [(data, share), ...], and {shown} is one image. For images with "
                "labels pass a table, such as a CSV with the columns path and label, or an object whose __getitem__(i) "
                "returns (image, label)"
            )
    return [tuple(part) for part in parts]


def _is_image(value: Any) -> bool:
    """Whether this is an image, or the path of one, and no dataset."""
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value).lower().endswith(_ENDINGS) and not os.path.isdir(value)
    # An array of four axes is a dataset.
    return isinstance(value, (bytes, bytearray)) or _is_pillows(value) or getattr(value, "ndim", 0) in (2, 3)


def image(value: Any) -> Any:
    """An image: bytes, an array (height, width, 3), or a path. An image of Pillow becomes a PNG if it is transparent,
    so that ``background`` applies to it, or if EXIF turns it, so that its annotations are turned or refused with it."""
    if isinstance(value, (bytes, bytearray, memoryview, str, os.PathLike)):
        return value
    if _is_tensor(value):
        return _of_tensor(value)
    if _is_pillows(value):
        import numpy as np

        if value.mode not in _MODES:
            raise TypeError(f"an image of Pillow's mode {value.mode!r}; want one of {', '.join(_MODES)}")
        transparent, exif = _is_transparent(value), _turning(value)
        if transparent or exif:
            png = io.BytesIO()
            value.convert("RGBA" if transparent else "RGB").save(png, "PNG", compress_level=0, exif=exif)
            return png.getvalue()
        return np.asarray(value if value.mode == "RGB" else value.convert("RGB"))
    shape: tuple[int, ...] = getattr(value, "shape", ())
    if str(getattr(value, "dtype", "")) == "uint8" and (len(shape) == 2 or len(shape) == 3 and shape[2] == 1):
        return value.reshape(shape[0], shape[1], 1).repeat(3, 2)
    return value


def asked(value: Any) -> Any:
    """An image of a request: bytes or an array (height, width, 3). A server must not read paths that its clients
    send, so paths are refused."""
    wanted = f"an image is {type(value).__name__}; want the bytes of an encoded image"
    if isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{wanted}: pathlib.Path(image).read_bytes()")
    # Memory maps can be read too, but have a buffer.
    if hasattr(value, "read") and not _has_buffer(value):
        raise TypeError(f"{wanted}: image.read()")
    return image(value)


def _has_buffer(value: Any) -> bool:
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def field(value: Any) -> Any:
    """A field other than an image: bytes, an array, a path, or for numbers and lists their JSON as a ``str``."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (int, float, list, tuple, dict)):
        return _json(value)
    if _is_tensor(value):
        return value.detach().cpu().numpy()
    if _is_pillows(value):
        import numpy as np

        return np.asarray(value)
    return value


def _json(value: Any) -> Any:
    """Numbers, lists and dicts as JSON, or as an array if they hold nan or infinity, which JSON lacks."""
    import json

    def plain(part: Any) -> Any:
        if hasattr(part, "tolist"):
            return part.tolist()
        kinds = f"a {type(value).__name__} that holds a {type(part).__name__}"
        raise TypeError(f"{kinds}; want numbers, texts and lists of them")

    try:
        return json.dumps(value, allow_nan=False, default=plain)
    except ValueError:
        import numpy as np

        return np.asarray(value, np.float64)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "permute")


def _is_pillows(value: Any) -> bool:
    return hasattr(value, "getbands") and hasattr(value, "convert")


def _is_transparent(value: Any) -> bool:
    """Whether an image of Pillow has transparent pixels: in a channel, by a color, or in its palette."""
    palette = getattr(value, "palette", None)
    return value.mode in _TRANSPARENT or "transparency" in value.info or str(getattr(palette, "mode", "")).endswith("A")


def _turning(value: Any) -> bytes:
    """The EXIF data that turns an image of Pillow upright, or nothing."""
    # Loading an image may turn it already.
    value.load()
    if not value.info.get("exif"):
        return b""
    orientation = value.getexif().get(_ORIENTATION, 1)
    if orientation not in range(2, 9):
        return b""
    # A TIFF structure with one entry: a number of 16 bits.
    return struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, _ORIENTATION, 3, 1, orientation, 0, 0)


def _of_tensor(value: Any) -> Any:
    """The pixels of a tensor (3, height, width), (1, height, width) or (height, width)."""
    shape, dtype = tuple(value.shape), str(value.dtype)
    if dtype != "torch.uint8":
        raise TypeError(
            f"a tensor of {dtype}; want uint8, the levels 0 to 255: leave out ToTensor() and Normalize(), and use dtype "
            "and normalize of the loader"
        )
    if len(shape) == 2:
        value = value[None]
    elif len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"a tensor of shape {shape}; want (3, height, width), (1, height, width) or (height, width)")
    return value.detach().cpu().expand(3, -1, -1).permute(1, 2, 0).numpy()
