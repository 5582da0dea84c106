"""Training and validation sets."""

from __future__ import annotations

from typing import Sequence

from . import _warpfeed

__all__ = ["split"]


def split(
    samples: int | Sequence[int], shares: Sequence[float], seed: int, labels: Sequence[int] | None = None
) -> list[list[int]]:
    """Divides samples at random into parts of these shares, for ``Loader(..., subset=part)``.

    ``samples`` are indices, or how many there are. ``seed`` alone decides which sample goes where.
    With ``labels``, one for each sample, each class is divided by itself.

    ::

        train, val = warpfeed.split(50_000, [0.9, 0.1], seed=42)
    """
    indices = list(range(samples)) if isinstance(samples, int) else [int(i) for i in samples]
    if labels is not None and len(labels) != len(indices):
        raise ValueError(f"{len(labels)} labels for {len(indices)} samples")
    return _warpfeed.split(indices, [float(s) for s in shares], seed, None if labels is None else [int(i) for i in labels])
