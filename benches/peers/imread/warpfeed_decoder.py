"""A warpfeed decoder plugin for imread-benchmark (schema 2)."""

from __future__ import annotations

import numpy as np
from imread_benchmark.decoders import BaseDecoder


class WarpfeedDecoder(BaseDecoder):
    """Decodes with :func:`warpfeed.decode_image`, which uses only the calling thread."""

    name = "warpfeed"
    package_name = "warpfeed"

    def decode(self, data: bytes) -> np.ndarray:
        import warpfeed

        return warpfeed.decode_image(data)
