"""Decodes one image without a loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _warpfeed

if TYPE_CHECKING:
    import numpy as np

__all__ = ["decode_image"]


def decode_image(data: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Decodes an encoded image in any format that a loader reads.

    The pixels are those that a loader with default options passes to its augmentation: JPEGs are
    bit-identical to libjpeg-turbo, gray is repeated in three channels, alpha is dropped, and the
    EXIF orientation is applied. The GIL is released while decoding.

    Args:
        data: the bytes of the encoded image: ``bytes`` or any bytes-like object.

    Returns:
        A writable ``uint8`` array of shape (height, width, 3), in RGB order.

    Raises:
        TypeError: if ``data`` is not bytes-like, for example a path.
        WarpfeedError: if the image cannot be decoded, or a loader needs an option for its format,
            as for 16-bit images. Small damage that libjpeg tolerates raises no error.
    """
    import numpy as np

    height, width, pixels = _warpfeed.decode_image(data)
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
