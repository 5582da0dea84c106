"""Packing: a data set that loads faster."""

from __future__ import annotations

from typing import Any, Callable

from . import _checks, _options, _warpfeed
from ._error import ConfigError
from ._sources import TableOptions

__all__ = ["pack"]


def pack(
    data: Any,
    target: _options.Path,
    *,
    recode: str = "lossless",
    quality: int | None = None,
    max_side: int | None = None,
    raw: int | tuple[int, int] | None = None,
    workers: int = 0,
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
    """Packs a data set into an LMDB (``train.lmdb``) or tar shards (``train.tar``): what the command
    line's ``pack`` does, of a Python source too.

    ::

        warpfeed.pack(my_dataset, "train.lmdb", progress=lambda done, total: bar.update(done - bar.n))

    Args:
        data: as that of :class:`Loader`, but for mixtures.
        recode: ``"lossless"`` rewrites JPEGs with the same pixels, for fast crops; ``"keep_bytes"``
            changes nothing.
        quality: encodes every image anew, as JPEG of 1 to 100. It loses detail.
        max_side: makes longer sides smaller, with ``quality`` or with quality 90.
        raw: stores arrays, of this shorter side, or of (width, height).
        workers: threads; 0 is one a core.
        force: replaces an existing data set. keep_bad: packs images that do not decode, which are
            an error otherwise. strict: damaged images are an error too.
        retries: how often a sample is read again after a transient error of its storage.
        shard_size: begins a new tar shard before one exceeds this many bytes.
        progress: called with the numbers of samples that are done, and of all, some times a second.
            An exception of it ends the packing, as Ctrl-C does.

    Returns:
        What was packed: ``samples``, ``bytes``, ``paths``, ``refused``, ``damaged`` and other numbers.

    Raises:
        WarpfeedError: for a sample that cannot be read, images that do not decode, or a target that
            exists or cannot be written. The target is then as it was.
    """
    _checks.check(locals(), ("shard_size",))
    if recode not in ("lossless", "keep_bytes"):
        raise ConfigError(
            f"recode={recode!r}: known are 'lossless' and 'keep_bytes'; quality, max_side and raw say more"
        )
    given = [name for name, value in [("quality", quality), ("max_side", max_side), ("raw", raw)] if value is not None]
    if recode == "keep_bytes" and given or raw is not None and len(given) > 1:
        raise ConfigError(f"{', '.join(given)} with recode={recode!r}: each decides on the images; set one of them")
    if raw is not None:
        how: tuple[str, int | None, int | None] = ("raw", *raw) if isinstance(raw, tuple) else ("raw", raw, None)
    elif quality is not None:
        how = ("quality", quality, max_side)
    elif max_side is not None:
        how = ("max_side", max_side, None)
    else:
        how = (recode, None, None)
    options: dict[str, Any] = {
        "recode": how, "workers": workers, "force": force, "keep_bad": keep_bad, "strict": strict,
        "retries": retries, "shard_size": shard_size, "mmap": mmap, "index": index,
    }  # fmt: skip
    if table is not None:
        options["table"] = table
    return _warpfeed.pack(data, _options.path_text(target), options, progress)
