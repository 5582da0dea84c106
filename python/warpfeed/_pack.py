"""Packing of data sets."""

from __future__ import annotations

import os
from typing import Any, Callable, Literal

from . import _options, _warpfeed
from ._error import ConfigError
from ._sources import TableOptions

__all__ = ["pack"]


def pack(
    data: Any,
    target: _options.Path,
    *,
    recode: Literal["lossless", "keep_bytes"] = "lossless",
    quality: int | None = None,
    max_side: int | None = None,
    raw: int | tuple[int, int] | None = None,
    num_workers: int = 0,
    force: bool = False,
    keep_bad: bool = False,
    strict: bool = False,
    retries: int = 3,
    shard_size: int | None = None,
    progress: Callable[[int, int], Any] | None = None,
    mmap: bool = True,
    index: bool = False,
    table: TableOptions | None = None,
) -> dict[str, Any]:
    """Packs a data set into an LMDB (``train.lmdb``) or tar shards (``train.tar``).

    It does the same as ``warpfeed pack`` on the command line, and also packs Python sources.

    ::

        warpfeed.pack(my_dataset, "train.lmdb", progress=lambda done, total: bar.update(done - bar.n))

    Args:
        data: as for :class:`Loader`, except mixtures.
        recode: ``"lossless"`` rewrites JPEGs with the same pixels, for fast crops; ``"keep_bytes"``
            changes nothing.
        quality: encodes every picture again, as JPEG of this quality (1 to 100). This loses detail.
        max_side: shrinks longer sides to this, with ``quality`` or with quality 90.
        raw: stores pixels as arrays: length of the shorter side, or (width, height).
        num_workers: number of threads; 0 is one per core.
        force: replaces an existing data set.
        keep_bad: packs pictures that do not decode. Without it they are an error.
        strict: makes damaged pictures an error.
        retries: number of times that a sample is read again after a transient error of its storage.
        shard_size: starts a new tar shard before one exceeds this many bytes.
        progress: called a few times a second with the finished and the total number of samples. An
            exception ends the packing, as Ctrl-C does.
        mmap, index, table: as for :class:`Loader`.

    Returns:
        The numbers of the run: ``samples``, ``bytes``, ``paths``, ``refused``, ``damaged`` and
        others.

    Raises:
        WarpfeedError: if a sample cannot be read, a picture does not decode, or the target exists
            or cannot be written. The target is then unchanged.
    """
    given = _options.given(pack, locals())
    if recode not in ("lossless", "keep_bytes"):
        raise ConfigError(
            f"recode={recode!r}: known are 'lossless' and 'keep_bytes'; quality, max_side and raw say more"
        )
    chosen = [name for name in ("quality", "max_side", "raw") if given[name] is not None]
    if recode == "keep_bytes" and chosen or raw is not None and len(chosen) > 1:
        raise ConfigError(f"{', '.join(chosen)} with recode={recode!r}: each decides on the images; set one of them")
    if raw is not None:
        how: tuple[str, int | None, int | None] = ("raw", *raw) if isinstance(raw, tuple) else ("raw", raw, None)
    elif quality is not None:
        how = ("quality", quality, max_side)
    elif max_side is not None:
        how = ("max_side", max_side, None)
    else:
        how = (recode, None, None)
    options = {**_options.native(given, without=("quality", "max_side", "raw", "progress")), "recode": how}
    return _warpfeed.pack(data, os.fspath(target), options, progress)
