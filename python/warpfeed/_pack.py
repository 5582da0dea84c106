"""Packs datasets."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Literal, NoReturn

from . import _options, _warpfeed
from ._error import ConfigError
from ._number_lists import whole
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
    num_workers: int | None = None,
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
    **unknown: NoReturn,
) -> dict[str, Any]:
    """Packs a dataset into an LMDB (``train.lmdb``) or tar shards (``train.tar``).

    This is equivalent to ``warpfeed pack`` on the command line, but also supports Python datasets.

    ::

        warpfeed.pack(my_dataset, "train.lmdb", progress=lambda done, total: bar.update(done - bar.n))

    Args:
        data: as for :class:`Loader`, except mixtures.
        target: a name that ends in ``.lmdb`` or ``.tar``. Shards may go to an object store, such as
            ``"s3://bucket/train.tar"``.
        recode: ``"lossless"`` rewrites JPEGs with the same pixels, for fast crops; ``"keep_bytes"``
            changes nothing.
        quality: re-encodes every image as a JPEG of this quality (1 to 100). This is lossy.
        max_side: shrinks images whose longer side exceeds this, and re-encodes them with
            ``quality``, which is then 90 by default.
        raw: stores pixels as arrays: length of the shorter side, or (height, width).
        convert_to_u8: converts images of 16 bits to their upper byte, and floats from 0 to 1 to 0 to 255, if
            ``quality``, ``max_side`` or ``raw`` decodes them. By default they stay unchanged
            and are counted in ``refused``. Images within ``max_side`` keep their bits.
        background: color behind transparent pixels of images that are decoded, such as
            ``(255, 255, 255)``. By default alpha is dropped.
        num_workers: number of threads; by default one per core.
        force: replaces an existing dataset.
        keep_bad: packs images that do not decode. By default, such an image raises an error.
        strict: raises an error for damaged images.
        retries: number of times that a sample is read again after a transient error of its storage.
        shard_size: starts a new tar shard before the current one exceeds this number of bytes. Shards of a part
            have this size on average.
        shard_samples: starts a new tar shard after this number of samples.
        part: ``(i, n)`` packs only part ``i`` of ``n``, from 0, of the shards. :func:`merge` then joins
            the parts. ``"auto"`` takes the part from a job array of SLURM or AWS Batch, and
            ``("auto", n)`` also from an indexed job of Kubernetes.
        samples: packs only the samples with these indices, in this order.
        keys: packs only the samples with these keys, in the order of ``data``. Excludes ``samples``.
        progress: a function that is called a few times per second with the finished and the total number of samples.
            An exception in it stops the packing, like Ctrl-C.
        mmap, index, table, masks: as for :class:`Loader`.

    Returns:
        The statistics of the run: ``samples``, ``bytes``, ``paths``, ``refused``, ``damaged`` and
        others.

    Raises:
        WarpfeedError: if a sample cannot be read, an image does not decode, or the target exists
            or cannot be written. The target is then unchanged. With shards, a repeated call
            continues after the last complete shard.
        TypeError: for an unknown argument or a value of the wrong type.
    """
    given = _options.given(pack, locals(), unknown)
    chosen = [name for name in ("quality", "max_side", "raw") if given[name] is not None]
    if recode == "keep_bytes" and chosen or raw is not None and len(chosen) > 1:
        raise ConfigError(
            f"{', '.join(chosen)} with recode={recode!r}: both choose how images are stored; set one of them"
        )
    if raw is not None:
        how: tuple[str, int | None, int | None] = ("raw", *raw) if isinstance(raw, tuple) else ("raw", raw, None)
    elif quality is not None:
        how = ("quality", quality, max_side)
    elif max_side is not None:
        how = ("max_side", max_side, None)
    else:
        how = (recode, None, None)
    options = {**_options.native(given, leave_out=("quality", "max_side", "raw", "progress", "part")), "recode": how}
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
    """Joins the parts that :func:`pack` wrote for ``target`` into one dataset.

    It checks that all parts exist and were packed from the same source with the same options, and
    verifies the checksums of all shards. After an interruption it can be run again.

    ::

        for i in range(2):  # on any machines that share the folder or store
            warpfeed.pack("train", "train.tar", shard_size=10**9, part=(i, 2))
        warpfeed.merge("train.tar")

    Args:
        target: the target of the parts.
        force: replaces an existing dataset in a folder. A dataset in a store is never replaced.
        quick: compares only the sizes of shards, not their checksums.

    Returns:
        The statistics of the whole dataset, as :func:`pack`, and ``orphans``: files that do not belong to it.

    Raises:
        WarpfeedError: if parts are missing, differ or are damaged. Nothing is changed then.
    """
    return _warpfeed.merge(os.fspath(target), force, quick)


def pack_progress(target: _options.Path) -> dict[str, Any]:
    """Returns the progress of all parts of ``target``, even while other processes pack them.

    Args:
        target: the target of the parts.

    Returns:
        A dict with the ``samples`` in complete shards, the ``total`` of the dataset, the number of ``parts``, the
        ``missing`` parts that are not complete as text such as ``"1,3-9,17"``, and whether the dataset is
        ``merged``. ``parts`` is None after the merge, and while no part has completed a
        shard. In an object store it is None while no part is complete.

    Raises:
        ConfigError: if there are neither parts nor a dataset of this name.
    """
    return _warpfeed.pack_progress(os.fspath(target))
