"""Packs datasets on a Ray cluster.

Each part is packed by a Ray task, which reads the samples of the part from the dataset. Ray's
object store contains only the dataset object, such as a path. All machines need access to the data
and to the target, so both must be in a shared folder or an object store.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Callable

from . import _options
from ._error import ConfigError
from ._pack import merge
from ._pack import pack as pack_here
from ._sources import Clips, Coco, Concat, LeRobot, PackedTokens, TableOptions, Tokens, Voc, Yolo, Zip

__all__ = ["pack"]


def pack(
    data: Any,
    target: _options.Path,
    *,
    parts: int,
    num_cpus: float = 1,
    max_retries: int = 3,
    progress: bool | Callable[[int, int], Any] = False,
    force: bool = False,
    skip_checksums: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Packs a dataset in ``parts`` Ray tasks, and merges the parts.

    ::

        import warpfeed.ray

        warpfeed.ray.pack("/shared/train", "/shared/packed/train.tar", parts=64, shard_size=10**9, num_cpus=4)

    If the machine that runs a task is lost, Ray runs the task again, and the task continues after
    the last complete shard. If packing fails, you can repeat the call later, to pack only the
    missing shards.

    Args:
        data: a path that all machines can open, or a dataset that can be pickled.
        target: a path that ends in ``.tar``, in a folder that all machines share or in an object
            store.
        parts: number of tasks. The packed dataset does not depend on this number.
        num_cpus: number of cores that Ray reserves for each task. Unless ``num_workers`` is set,
            each task starts as many threads, but at least one.
        max_retries: number of times that a task is run again if its worker or machine is lost. A
            task that fails because of its data is not run again.
        progress: pass True to print the number of finished parts. A function is called with the
            number of finished parts and the total number of parts.
        force: replaces an existing dataset.
        skip_checksums: makes the merge check only the sizes of shards, not their checksums.
        options: other options of :func:`warpfeed.pack`, except ``part``. ``shard_size`` or
            ``shard_samples`` is required.

    Returns:
        The statistics of the whole dataset, as :func:`warpfeed.merge` returns them.

    Raises:
        WarpfeedError: the first error, if packing a part or merging fails.
        ConfigError: if Ray is not installed, if ``parts`` is less than 1, or if ``part`` is passed.
        ray.exceptions.RayError: if a task is lost more than ``max_retries`` times.
    """
    try:
        import ray
    except ImportError as e:
        raise ConfigError("warpfeed.ray needs Ray; install it with pip install ray") from e
    if parts < 1:
        raise ConfigError(f"parts={parts}: expected at least 1")
    if "part" in options:
        raise ConfigError("part: warpfeed.ray.pack chooses the part of each task; leave part out")
    if not ray.is_initialized():
        ray.init()
    # The current folder of Ray's workers is different.
    target_name: str = _absolute(os.fspath(target))
    data = _absolute(data)
    # A relative `masks` is relative to the parent of `data`, which is absolute.
    for name in ("classes_file", "table"):
        if options.get(name) is not None:
            options[name] = _absolute(options[name])
    options = {"num_workers": max(1, int(num_cpus)), **options, "force": force}
    task = ray.remote(_pack_part).options(num_cpus=num_cpus, max_retries=max_retries)
    data_ref: Any = ray.put(data)
    pending = [task.remote(data_ref, target_name, (part, parts), options) for part in range(parts)]
    total = parts
    try:
        while pending:
            finished, pending = ray.wait(pending, num_returns=1)
            error = ray.get(finished[0])
            if error is not None:
                raise error
            _report_progress(progress, total - len(pending), total)
    finally:
        for unfinished in pending:
            ray.cancel(unfinished)
    return merge(target_name, force=force, skip_checksums=skip_checksums)


def _absolute(data: Any) -> Any:
    """Makes a path absolute, or all paths in a dataset and its options."""
    if isinstance(data, (str, os.PathLike)):
        path = os.fspath(data)
        return path if "://" in path else os.path.abspath(path)
    if isinstance(data, (Concat, Zip)):
        return replace(data, parts=[_absolute(part) for part in data.parts])
    if isinstance(data, (Clips, Coco, LeRobot, PackedTokens, TableOptions, Tokens, Voc, Yolo)):
        paths = {name: getattr(data, name, None) for name in ("json", "images", "path", "root")}
        return replace(data, **{name: _absolute(path) for name, path in paths.items() if path is not None})
    return data


def _pack_part(data: Any, target: str, part: tuple[int, int], options: dict[str, Any]) -> Exception | None:
    """Packs one part. Returns an exception instead of raising it, because Ray would change its
    type."""
    try:
        pack_here(data, target, part=part, **options)
    except Exception as e:  # noqa: BLE001
        return e
    return None


def _report_progress(progress: bool | Callable[[int, int], Any], finished: int, total: int) -> None:
    if callable(progress):
        progress(finished, total)
    elif progress:
        print(f"packed {finished} of {total} parts", flush=True)
