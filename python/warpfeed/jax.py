"""Converts batches to global JAX arrays: ``import warpfeed.jax``.

::

    mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    loader = warpfeed.Loader(
        "imagenet/train", global_batch_size=1024, shuffle=True, seed=42, drop_last=True, normalize="imagenet",
        output="numpy", rank=jax.process_index(), world_size=jax.process_count(),
    )
    for images, labels in warpfeed.jax.sharded(loader, sharding):
        state = step(state, images, labels)  # each device has its part of the batch

To use properties of a batch, such as ``valid`` and ``ids``, iterate over the loader itself::

    for batch in loader:
        images, labels, valid = warpfeed.jax.shard((*batch, batch.valid), sharding)
"""

from __future__ import annotations

import importlib
from typing import Any, Iterator

from ._error import ConfigError
from ._loader import Loader
from ._mixture import Mixture

__all__ = ["Sharded", "shard", "sharded"]


def shard(batch: Any, sharding: Any) -> Any:
    """Converts the arrays in ``batch`` to global arrays with the given sharding, and returns them
    in the same structure.

    The arrays of this process become its part of the global arrays. Along the first axis, a global
    array concatenates the parts of all processes, ordered by process index. Each device receives
    only the part that it needs. The function returns when all arrays have been copied to their
    devices. After that, the loader can reuse the memory of the batch.

    Args:
        batch: a batch with ``output="numpy"`` or ``"dlpack"``, or nested dicts, lists and tuples of
            arrays.
        sharding: a ``jax.sharding.Sharding``.

    Raises:
        ConfigError: if an array has no axes, if the sharding does not fit the shape of an array, if
            it assigns samples of a different process to a device of this process, if an integer
            does not fit in the 32 bits that JAX uses by default, or if several processes have a
            :class:`warpfeed.Patches` field.
    """
    jax = _jax()
    packed = [name for name in batch if str(name).endswith(".cu_seqlens")] if isinstance(batch, dict) else []
    if packed and jax.process_count() > 1:
        field = packed[0].removesuffix(".cu_seqlens")
        raise ConfigError(
            f"the field {field!r} has a different number of patches in each process, so its batches are not parts of "
            "one global array; remove the field from the batch"
        )
    arrays = _map_arrays(batch, lambda array: _global_array(array, sharding, jax))
    return jax.block_until_ready(arrays)


def _jax() -> Any:
    """Imports ``jax`` at run time. Type checkers do not see the import, because the package may not
    be installed."""
    return importlib.import_module("jax")


def _map_arrays(value: Any, f: Any) -> Any:
    """Applies `f` to all arrays in nested dicts, tuples and lists. Other values do not change."""
    if isinstance(value, dict):
        return {key: _map_arrays(item, f) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = [_map_arrays(item, f) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return f(value) if hasattr(value, "shape") or hasattr(value, "__dlpack__") else value


def _global_array(array: Any, sharding: Any, jax: Any) -> Any:
    import numpy as np

    array = np.asarray(array)
    if array.ndim == 0:
        raise ConfigError(
            f"shard: {array!r} has no axes; expected arrays whose first axis is the sample; remove single numbers from "
            "the batch"
        )
    _check_range(array, jax)
    processes = jax.process_count()
    shape = (array.shape[0] * processes, *array.shape[1:])
    first_sample = array.shape[0] * jax.process_index()
    try:
        device_slices = sharding.addressable_devices_indices_map(shape)
    except (ValueError, IndexError) as e:
        # JAX's IndexError for a spec with too many axes does not mention the sharding.
        cause = "the spec has more axes than the array" if isinstance(e, IndexError) else e
        raise ConfigError(f"sharding={sharding} does not fit an array of shape {shape}: {cause}") from e
    parts = []
    for device, slices in device_slices.items():
        start, end, _ = slices[0].indices(shape[0]) if slices else (0, shape[0], 1)
        if not first_sample <= start <= end <= first_sample + array.shape[0]:
            raise ConfigError(
                f"{device} needs samples {start} to {end} of the global batch, but process {jax.process_index()} has "
                f"samples {first_sample} to {first_sample + array.shape[0]}: the first axis of the mesh must be in the "
                "order of the processes"
            )
        # On the CPU, JAX would share the batch's memory, which is reused later.
        part = np.array(array[(slice(start - first_sample, end - first_sample), *slices[1:])])
        parts.append(jax.device_put(part, device))
    return jax.make_array_from_single_device_arrays(shape, sharding, parts)


def _check_range(array: Any, jax: Any) -> None:
    """Raises an error if JAX would silently truncate 64-bit integers to 32 bits."""
    if array.dtype.itemsize < 8 or array.dtype.kind not in "iu" or jax.config.jax_enable_x64 or array.size == 0:
        return
    low, high = int(array.min()), int(array.max())
    limits = (0, 1 << 32) if array.dtype.kind == "u" else (-(1 << 31), 1 << 31)
    if low < limits[0] or high >= limits[1]:
        raise ConfigError(
            f"integers from {low} to {high} do not fit in the 32 bits that JAX uses by default; call "
            "jax.config.update('jax_enable_x64', True)"
        )


class Sharded:
    """The result of :func:`sharded`: a loader that yields global arrays."""

    def __init__(self, loader: Loader, sharding: Any) -> None:
        self.loader, self.sharding = loader, sharding

    def __iter__(self) -> Iterator[Any]:
        return map(self._shard, self.loader)

    def epoch_from(self, epoch: int, first: int) -> Iterator[Any]:
        """Returns an iterator over ``epoch`` that starts at batch ``first``, like
        :meth:`Loader.epoch_from`."""
        return map(self._shard, self.loader.epoch_from(epoch, first))

    def __len__(self) -> int:
        return len(self.loader)

    def _shard(self, batch: Any) -> Any:
        return shard(batch, self.sharding)


def sharded(loader: Loader, sharding: Any) -> Sharded:
    """Returns a loader that yields global arrays with the given sharding. Its batches are plain
    tuples or dicts, without properties such as ``valid``. If you need these properties, use
    :func:`shard` instead.

    Every process must open a loader with its own ``rank`` and with batches in host memory. All
    ranks need batches of the same size, so incomplete last batches must be dropped or padded.

    Raises:
        ConfigError: if the batches are torch tensors or on a device, if the global batch size is
            not a multiple of the number of processes, if ``last_batch="keep"`` is used with several
            processes, or if the rank or the world size differs from JAX's process index or process
            count.
        TypeError: if ``sharding`` is not a ``jax.sharding.Sharding``, for example if it is a mesh.
    """
    jax = _jax()
    _check_loader(loader, jax.process_index(), jax.process_count())
    if not hasattr(sharding, "addressable_devices_indices_map"):
        raise TypeError(
            f"sharding is a {type(sharding).__name__}: expected a jax.sharding.Sharding, such as "
            "NamedSharding(mesh, PartitionSpec('batch'))"
        )
    return Sharded(loader, sharding)


def _check_loader(loader: Loader, process: int, processes: int) -> None:
    if loader.device is not None or loader._delivery.is_torch:
        kind = "are on a device" if loader.device is not None else "are torch tensors"
        raise ConfigError(
            f"the batches {kind}, but JAX needs arrays in host memory; pass output='numpy' and no device to the loader"
        )
    if (loader.rank, loader.world_size) != (process, processes):
        raise ConfigError(
            f"the loader is rank {loader.rank} of {loader.world_size}, but this is process {process} of {processes} of "
            "JAX; pass rank=jax.process_index(), world_size=jax.process_count()"
        )
    global_batch, data = loader._arguments.get("global_batch_size"), loader._arguments["data"]
    set_sizes = data.global_batch_sizes if isinstance(data, Mixture) else ()
    for size in set_sizes or ([] if global_batch is None else [global_batch]):
        if size % processes:
            name = "global_batch_sizes" if set_sizes else "global_batch_size"
            raise ConfigError(f"{name}: {size} is not a multiple of the number of processes, {processes}")
    if processes > 1 and not loader.drop_last and loader._arguments.get("last_batch") != "pad":
        raise ConfigError(
            "the size of the last batch may differ between processes; pass drop_last=True or last_batch='pad'"
        )
