"""Packs datasets into LMDBs and tar shards."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Literal, NoReturn, Sequence

from . import _options, _warpfeed
from ._error import ConfigError
from ._mixture import Mixture
from ._number_lists import integers
from ._options import name_tuple
from ._sources import TableOptions

__all__ = ["merge", "pack", "pack_progress"]


def pack(
    data: Any,
    target: _options.Path,
    *,
    recode: Literal["lossless", "keep_bytes"] = "lossless",
    frames: bool = False,
    quality: int | None = None,
    max_side: int | None = None,
    raw: int | tuple[int, int] | list[int] | None = None,
    images: Iterable[str] | None = None,
    convert_to_u8: bool = False,
    background: tuple[int, int, int] | None = None,
    num_workers: int | None = None,
    force: bool = False,
    keep_undecodable: bool = False,
    strict: bool = False,
    retries: int = 3,
    shard_size: int | None = None,
    shard_samples: int | None = None,
    part: tuple[int | Literal["auto"], int] | Literal["auto"] | None = None,
    samples: Iterable[int] | None = None,
    keys: Iterable[str] | None = None,
    progress: Callable[[int, int], Any] | None = None,
    mmap: bool = True,
    cache_listing: bool = False,
    format: str | None = None,
    classes: Sequence[str] | None = None,
    classes_file: _options.Path | None = None,
    table: TableOptions | None = None,
    masks: _options.Path | None = None,
    **unknown: NoReturn,
) -> dict[str, Any]:
    """Packs a dataset into an LMDB (``train.lmdb``) or into tar shards (``train.tar``).

    This function does the same as ``warpfeed pack`` on the command line, but also supports Python
    datasets.

    ::

        warpfeed.pack(my_dataset, "train.lmdb", progress=lambda done, total: bar.update(done - bar.n))

    Args:
        data: as for :class:`Loader`, except mixtures.
        target: a path that ends in ``.lmdb`` or ``.tar``. Shards may also be written to an object
            store, as in ``"s3://bucket/train.tar"``.
        recode: ``"lossless"`` rewrites JPEGs so that they can be cropped faster, without changing
            their pixels; ``"keep_bytes"`` stores files unchanged.
        frames: packs a :class:`LeRobot` dataset as a LeRobot dataset, with episodes and statistics.
            ``target`` is a folder, or the path of a ``.tar`` in a folder. Each frame is decoded
            once, and stored as a JPEG with ``quality``, which is 95 by default.
        quality: re-encodes every image, including the cameras of robots, as a JPEG of this quality
            (1 to 100), with 4:2:0 chroma subsampling. This is lossy.
        max_side: shrinks images whose longer side exceeds this number of pixels, and re-encodes
            them with ``quality``, which is 90 by default. Packing fails if the sample has a mask,
            boxes in pixels or a different field of the same size, unless ``images`` names the field.
        raw: stores images as arrays of pixels, resized to a shorter side of this length, or to
            (height, width).
        images: names of the fields that contain images in addition to the main image, such as
            ``["left", "right"]``. These images are recoded as well. The default is the cameras of a
            :class:`LeRobot` dataset. At least one sample must have the field.
        convert_to_u8: converts 16-bit images by taking their upper byte, and float images by
            scaling the range 0 to 1 to 0 to 255, if ``quality``, ``max_side`` or ``raw`` requires
            decoding them; an error is raised if none of the three is set. By default, 16-bit and
            float images are stored unchanged and listed in ``not_recoded``. Images that do not
            exceed ``max_side`` are also stored unchanged.
        background: color behind transparent pixels of images that are decoded, such as ``(255,
            255, 255)``. By default, alpha is ignored. Requires ``quality``, ``max_side`` or
            ``raw``.
        num_workers: number of threads; by default one per core.
        force: replaces an existing dataset of the same format. A dataset in an object store is
            never replaced.
        keep_undecodable: stores images that cannot be decoded unchanged. By default, such images
            raise an error.
        strict: raises an error if damage is detected in an image, even if it can be decoded. Not
            all damage of a JPEG can be detected, because a JPEG has no checksum. This option has no
            effect with ``keep_undecodable``.
        retries: number of times that a sample is read again after a transient storage error.
        shard_size: starts a new tar shard before the current shard exceeds this number of bytes.
            With ``part``, this is the approximate average size of a shard. By default, one file is
            written. With ``part`` or an object store, ``shard_size`` or ``shard_samples`` is
            required.
        shard_samples: starts a new tar shard after this number of samples.
        part: ``(i, n)`` packs only part ``i`` of ``n`` of the shards, counting from 0.
            :func:`merge` then joins the parts. ``"auto"`` takes the part from a job array of SLURM
            or AWS Batch, and ``("auto", n)`` also from an indexed job of Kubernetes.
        samples: packs only the samples with these indices, in this order.
        keys: packs only the samples with these keys, in the order of ``data``. All keys must exist.
            Cannot be combined with ``samples``.
        progress: a function that is called up to 40 times per second with the number of finished
            samples and the total number of samples. If it raises an exception, packing stops, as
            after Ctrl-C.
        format: format of the dataset, such as ``"tar"`` or ``"coco"``, instead of detecting it.
            ``data`` must be a path. ``warpfeed pack --help`` lists the names.
        mmap, cache_listing, classes, classes_file, table, masks: as for :class:`Loader`.

    Returns:
        The statistics of the run: ``samples``, ``bytes``, ``paths``, ``not_recoded``, ``damaged``
        and others. If images were re-encoded, ``psnr`` contains their mean PSNR and their lowest
        PSNR in dB, and the key of the sample with the lowest PSNR. Otherwise, ``psnr`` is None.

    Raises:
        ConfigError: if an option is invalid, or if the target exists and ``force`` is not set.
        WarpfeedError: if a sample cannot be read, an image cannot be decoded, or the target cannot
            be written. An existing dataset is then unchanged. With shards, you can repeat the call,
            which continues after the last complete shard.
        TypeError: for an unknown argument or a value of the wrong type.
    """
    values = _options.checked(pack, locals(), unknown)
    if isinstance(data, Mixture):
        raise TypeError(
            "a Mixture cannot be packed, because it draws samples in each epoch; pack each of its datasets, and pass a "
            "Mixture of the results to Loader"
        )
    _options.reject_bytes("data", data)
    _options.exclusive(values, ("classes", "classes_file"))
    if format is not None and not isinstance(data, (str, os.PathLike)):
        raise ConfigError(f"format={format!r} requires data to be a path, but data is {data!r:.80}; leave format out")
    recode_options = [name for name in ("quality", "max_side", "raw") if values[name] is not None]
    if recode == "keep_bytes" and recode_options or raw is not None and len(recode_options) > 1:
        raise ConfigError(
            f"{', '.join(recode_options)} with recode={recode!r}: recode='keep_bytes' excludes quality, max_side and "
            "raw, and raw excludes quality and max_side; leave out the options that contradict each other"
        )
    if raw is not None:
        method: tuple[str, int | None, int | None] = ("raw", *_raw_size(raw))
    elif quality is not None:
        method = ("quality", quality, max_side)
    elif max_side is not None:
        method = ("max_side", max_side, None)
    else:
        method = (recode, None, None)
    options = _options.to_native(values, leave_out=("recode", "quality", "max_side", "raw", "images", "progress", "part"))
    if method[0] != "lossless":
        options["recode"] = method
    if images is not None:
        options["images"] = list(name_tuple("images", images))
    if samples is not None:
        options["samples"] = integers("samples", samples)
    if keys is not None:
        options["keys"] = list(keys)
    if part == "auto":
        options["part"] = _warpfeed.part_from_env(None)
    elif part is not None:
        if not isinstance(part, (tuple, list)) or len(part) != 2:
            raise TypeError(f"part={part!r}: expected (i, n), ('auto', n) or 'auto'")
        part_index, parts = part
        options["part"] = _warpfeed.part_from_env(parts) if part_index == "auto" else (part_index, parts)
    return _warpfeed.pack(data, os.fspath(target), options, progress)


def _raw_size(raw: Any) -> tuple[int, int | None]:
    """Returns the length of the shorter side and None, or (height, width)."""
    if not isinstance(raw, (tuple, list)):
        return _options.integer("raw", raw), None
    if len(raw) != 2:
        raise TypeError(f"raw={raw!r}: expected the length of the shorter side, or (height, width)")
    return _options.integer("raw", raw[0]), _options.integer("raw", raw[1])


def merge(target: _options.Path, *, force: bool = False, skip_checksums: bool = False) -> dict[str, Any]:
    """Joins the parts that :func:`pack` wrote for ``target`` into one dataset.

    Checks that all parts exist and were packed from the same source with the same options, and,
    unless ``skip_checksums`` is set, verifies the checksums of all shards. An interrupted merge can
    be run again.

    ::

        for i in range(2):  # on any machines that share the folder or store
            warpfeed.pack("train", "train.tar", shard_size=10**9, part=(i, 2))
        warpfeed.merge("train.tar")

    Args:
        target: the ``target`` that was passed to :func:`pack`.
        force: replaces an existing dataset in a folder. A dataset in an object store is never
            replaced.
        skip_checksums: checks only the sizes of shards, not their checksums.

    Returns:
        The statistics of the whole dataset, as :func:`pack` returns them, and ``orphans``: files in
        the same folder that do not belong to the dataset.

    Raises:
        WarpfeedError: if parts are missing or damaged, if they were packed differently, or if a
            dataset with this name exists and ``force`` is not set. In these cases, nothing is
            changed.
    """
    return _warpfeed.merge(os.fspath(target), force, skip_checksums)


def pack_progress(target: _options.Path) -> dict[str, Any]:
    """Returns the progress of all parts of ``target``, even while other processes pack them.

    Args:
        target: the ``target`` that was passed to :func:`pack`.

    Returns:
        A dict with these keys: ``samples``, the number of samples in complete shards; ``total``,
        the number of samples in the dataset; ``parts``, the number of parts; ``missing``, the
        incomplete parts as text, such as ``"1,3-9,17"``; and ``merged``, whether the parts have
        been merged. ``parts`` is None after the merge, and before the first shard is complete. In
        an object store, ``parts`` is None before the first part is complete.

    Raises:
        ConfigError: if there are neither parts nor a dataset with this name.
    """
    return _warpfeed.pack_progress(os.fspath(target))
