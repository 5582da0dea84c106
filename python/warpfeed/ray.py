"""Packing on a Ray cluster.

A Ray task packs each part of the dataset and returns its statistics. The samples never enter Ray's
object store. All machines need access to the data, and to a shared folder or an object store for the target.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Callable

from . import _options
from ._error import ConfigError
from ._pack import merge
from ._pack import pack as pack_here
from ._sources import Coco, Concat, TableOptions, Voc, Yolo

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
    quick: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Packs a dataset in ``parts`` tasks on Ray, and merges the parts.

    ::

        import warpfeed.ray

        warpfeed.ray.pack("/shared/train", "/shared/packed/train.tar", parts=64, shard_size=10**9, num_cpus=4)

    If the machine of a task is lost, the task runs again and continues after the last complete shard. If packing
    fails, repeat the call later: it packs only the missing shards.

    Args:
        data: a path that all machines can open, or a dataset that can be pickled.
        target: a name that ends in ``.tar``, in a folder that all machines share or in an object store.
        parts: number of tasks. The packed dataset does not depend on it.
        num_cpus: number of cores that Ray reserves for a task, and number of its threads.
        max_retries: number of times that a task is run again if its worker or machine is lost.
            Errors of the data are not retried.
        progress: True prints the number of finished parts. A function is called with the numbers of finished parts
            and of all parts.
        force: replaces an existing dataset.
        quick: compares only the sizes of shards in the merge, not their checksums.
        options: other options of :func:`warpfeed.pack`, such as ``shard_size``.

    Returns:
        The statistics of the whole dataset, as :func:`warpfeed.merge`.

    Raises:
        WarpfeedError: the first error of a part, or of the merge.
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
    # Ray's workers have their own working folder.
    name: str = _absolute(os.fspath(target))
    data = _absolute(data)
    if options.get("table") is not None:
        options["table"] = _absolute(options["table"])
    options = {"num_workers": max(1, int(num_cpus)), **options, "force": force}
    task = ray.remote(_part).options(num_cpus=num_cpus, max_retries=max_retries)
    shared: Any = ray.put(data)
    waiting = [task.remote(shared, name, (part, parts), options) for part in range(parts)]
    total = parts
    try:
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1)
            error = ray.get(done[0])
            if error is not None:
                raise error
            _tell(progress, total - len(waiting), total)
    finally:
        for left in waiting:
            ray.cancel(left)
    return merge(name, force=force, quick=quick)


def _absolute(data: Any) -> Any:
    """`data` with absolute paths. It is a path, or an object that contains paths."""
    if isinstance(data, (str, os.PathLike)):
        path = os.fspath(data)
        return path if "://" in path else os.path.abspath(path)
    if isinstance(data, Concat):
        return replace(data, parts=[_absolute(part) for part in data.parts])
    if isinstance(data, (Coco, Yolo, Voc, TableOptions)):
        paths = {name: getattr(data, name, None) for name in ("json", "images", "path", "root")}
        return replace(data, **{name: _absolute(path) for name, path in paths.items() if path is not None})
    return data


def _part(data: Any, target: str, part: tuple[int, int], options: dict[str, Any]) -> Exception | None:
    """Packs a part in a task. Errors are returned, not raised, so that they keep their type."""
    try:
        pack_here(data, target, part=part, **options)
    except Exception as e:  # noqa: BLE001
        return e
    return None


def _tell(progress: bool | Callable[[int, int], Any], done: int, total: int) -> None:
    if callable(progress):
        progress(done, total)
    elif progress:
        print(f"packed {done} of {total} parts", flush=True)
