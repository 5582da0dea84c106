"""Packing of datasets."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Literal

from . import _options, _warpfeed
from ._error import ConfigError
from ._numbers import whole
from ._sources import TableOptions

__all__ = ["merge", "pack", "pack_progress"]


def pack(
    data: Any,
    target: _options.Path,
    *,
    recode: Literal["lossless", "keep_bytes"] = "lossless",
    quality: int | None = None,
    max_side: int | None = None,
    raw: int | tuple[int, int] | None = None,
    convert_to_u8: bool = False,
    background: tuple[int, int, int] | None = None,
    num_workers: int = 0,
    force: bool = False,
    keep_bad: bool = False,
    strict: bool = False,
    retries: int = 3,
    shard_size: int | None = None,
    shard_samples: int | None = None,
    part: tuple[int | Literal["auto"], int] | Literal["auto"] | None = None,
    samples: Iterable[int] | None = None,
    keys: Iterable[str] | None = None,
    progress: Callable[[int, int], Any] | None = None,
    mmap: bool = True,
    index: bool = False,
    table: TableOptions | None = None,
    masks: _options.Path | None = None,
) -> dict[str, Any]:
    """Packs a dataset into an LMDB (``train.lmdb``) or tar shards (``train.tar``).

    It does the same as ``warpfeed pack`` on the command line, and also packs Python sources.

    ::

        warpfeed.pack(my_dataset, "train.lmdb", progress=lambda done, total: bar.update(done - bar.n))

    Args:
        data: as for :class:`Loader`, except mixtures.
        target: a name that ends in ``.lmdb`` or ``.tar``. Shards may go to an object store, such as
            ``"s3://bucket/train.tar"``.
        recode: ``"lossless"`` rewrites JPEGs with the same pixels, for fast crops; ``"keep_bytes"``
            changes nothing.
        quality: encodes every image again, as JPEG of this quality (1 to 100). This loses detail.
        max_side: shrinks longer sides to this, with ``quality`` or with quality 90.
        raw: stores pixels as arrays: length of the shorter side, or (height, width).
        convert_to_u8: converts images of 16 bits and of floats that ``quality``, ``max_side`` or
            ``raw`` decodes to 8 bits: the upper byte, and 0 to 1. Without it they stay unchanged
            and are in ``refused``. Images within ``max_side`` keep their bits.
        background: the color behind transparent pixels of images that are decoded, such as
            ``(255, 255, 255)``. By default alpha is dropped.
        num_workers: number of threads; 0 is one per core.
        force: replaces an existing dataset.
        keep_bad: packs images that do not decode. Without it they are an error.
        strict: makes damaged images an error.
        retries: number of times that a sample is read again after a transient error of its storage.
        shard_size: starts a new tar shard before one exceeds this many bytes. Shards of a part have
            this size on average.
        shard_samples: starts a new tar shard after this many samples.
        part: ``(i, n)`` packs only part ``i`` of ``n``, from 0, of the shards; :func:`merge` makes
            the parts a set. ``"auto"`` takes the part from an array of SLURM or AWS Batch, and
            ``("auto", n)`` also from an indexed job of Kubernetes.
        samples: packs only the samples with these indices, in this order.
        keys: packs only the samples with these keys, in the order of ``data``; without ``samples``.
        progress: called a few times a second with the finished and the total number of samples. An
            exception ends the packing, as Ctrl-C does.
        mmap, index, table, masks: as for :class:`Loader`.

    Returns:
        The numbers of the run: ``samples``, ``bytes``, ``paths``, ``refused``, ``damaged`` and
        others.

    Raises:
        WarpfeedError: if a sample cannot be read, an image does not decode, or the target exists
            or cannot be written. The target is then unchanged. With shards, packing again
            continues after the last complete shard.
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
    options = {**_options.native(given, without=("quality", "max_side", "raw", "progress", "part")), "recode": how}
    if samples is not None:
        options["samples"] = whole("samples", samples)
    if keys is not None:
        options["keys"] = list(keys)
    if part == "auto":
        options["part"] = _warpfeed.part_from_env(None)
    elif part is not None:
        number, parts = part
        options["part"] = _warpfeed.part_from_env(parts) if number == "auto" else (number, parts)
    return _warpfeed.pack(data, os.fspath(target), options, progress)


def merge(target: _options.Path, *, force: bool = False, quick: bool = False) -> dict[str, Any]:
    """Makes the parts that :func:`pack` wrote for ``target`` a set.

    It checks that all parts are there and were packed from the same source with the same options,
    and the checksums of all shards. Interrupted at any time, it can be run again.

    ::

        for i in range(2):  # on any machines that share the folder or store
            warpfeed.pack("train", "train.tar", shard_size=10**9, part=(i, 2))
        warpfeed.merge("train.tar")

    Args:
        target: the target of the parts.
        force: replaces an existing set in a folder. One in a store is never replaced.
        quick: compares only the sizes of shards, not their checksums.

    Returns:
        The numbers of the whole set, as :func:`pack`, and ``orphans``: files that do not belong to it.

    Raises:
        WarpfeedError: if parts are missing, differ or are damaged. Nothing has changed then.
    """
    return _warpfeed.merge(os.fspath(target), force, quick)


def pack_progress(target: _options.Path) -> dict[str, Any]:
    """Reports the progress of all parts of ``target``, also while other processes pack them.

    Args:
        target: the target of the parts.

    Returns:
        ``samples`` in complete shards, the ``total`` of the set, the number of ``parts``, the
        ``missing`` parts that are not complete as text such as ``"1,3-9,17"``, and whether the set is
        ``merged``. ``parts`` is ``None`` once the set is merged, and while no part has completed a
        shard; in an object store, while no part is complete.

    Raises:
        ConfigError: if there are no parts and no set of this name.
    """
    return _warpfeed.pack_progress(os.fspath(target))
