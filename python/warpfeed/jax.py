"""Batches as global arrays of JAX: ``import warpfeed.jax``.

::

    mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    loader = warpfeed.Loader(
        "imagenet/train", global_batch_size=1024, shuffle=True, seed=42, drop_last=True, normalize="imagenet",
        output="numpy", rank=jax.process_index(), world_size=jax.process_count(),
    )
    for images, labels in warpfeed.jax.sharded(loader, sharding):
        state = step(state, images, labels)  # each device has its part of the batch

The properties of a batch, such as ``valid`` and ``ids``, come from the batches of the loader::

    for batch in loader:
        images, labels, valid = warpfeed.jax.shard((*batch, batch.valid), sharding)
"""

from __future__ import annotations

import importlib
from typing import Any, Iterator

from ._error import ConfigError
from ._loader import Loader

__all__ = ["Sharded", "shard", "sharded"]


def shard(batch: Any, sharding: Any) -> Any:
    """Returns the arrays of ``batch`` as global arrays with this sharding, in the same structure.

    The arrays of this process become its part of the global arrays. The first axis of a global
    array joins the processes in the order of their numbers. A part of the batch is copied only to the devices that
    need it. The function waits until the arrays are on their devices, so the memory of the loader is free again.

    Args:
        batch: a batch with ``output="numpy"`` or ``"dlpack"``, or nested dicts, lists and tuples of
            arrays.
        sharding: a ``jax.sharding.Sharding``.

    Raises:
        ConfigError: if the devices cannot divide the batch evenly, or if the devices of this process do not
            hold exactly the part of this process.
    """
    jax = _jax()
    made = _mapped(batch, lambda array: _global(array, sharding, jax))
    return jax.block_until_ready(made)


def _jax() -> Any:
    """Imports and returns the package on first use, hidden from type checkers."""
    return importlib.import_module("jax")


def _mapped(value: Any, f: Any) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(item, f) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = [_mapped(item, f) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return f(value) if hasattr(value, "shape") or hasattr(value, "__dlpack__") else value


def _global(array: Any, sharding: Any, jax: Any) -> Any:
    import numpy as np

    array = np.asarray(array)
    _check_range(array, jax)
    processes = jax.process_count()
    shape = (array.shape[0] * processes, *array.shape[1:])
    first = array.shape[0] * jax.process_index()
    try:
        places = sharding.addressable_devices_indices_map(shape)
    except (ValueError, IndexError) as e:
        # For a spec with too many axes, JAX raises an IndexError about a list.
        cause = "it has more axes than the array" if isinstance(e, IndexError) else e
        raise ConfigError(f"sharding={sharding} does not fit an array of shape {shape}: {cause}") from e
    parts = []
    for device, place in places.items():
        start, end, _ = place[0].indices(shape[0]) if place else (0, shape[0], 1)
        if not first <= start <= end <= first + array.shape[0]:
            raise ConfigError(
                f"{device} needs samples {start} to {end} of the global batch, and process {jax.process_index()} has "
                f"samples {first} to {first + array.shape[0]}: the first axis of the mesh must follow the processes"
            )
        # On the CPU, JAX would share the memory of the batch, which is reused for later batches.
        own = np.array(array[(slice(start - first, end - first), *place[1:])])
        parts.append(jax.device_put(own, device))
    return jax.make_array_from_single_device_arrays(shape, sharding, parts)


def _check_range(array: Any, jax: Any) -> None:
    """Raises an error for integers that JAX without 64-bit types would silently truncate."""
    if array.dtype.itemsize < 8 or array.dtype.kind not in "iu" or jax.config.jax_enable_x64 or array.size == 0:
        return
    low, high = int(array.min()), int(array.max())
    if low < -(1 << 31) or high >= 1 << 31:
        raise ConfigError(
            f"integers from {low} to {high} do not fit the 32 bits of JAX; call jax.config.update('jax_enable_x64', "
            "True)"
        )


class Sharded:
    """A loader of global arrays: the result of :func:`sharded`."""

    def __init__(self, loader: Loader, sharding: Any) -> None:
        self.loader, self.sharding = loader, sharding

    def __iter__(self) -> Iterator[Any]:
        return map(self._made, self.loader)

    def epoch_from(self, epoch: int, first: int) -> Iterator[Any]:
        """Returns an iterator over epoch ``epoch`` that starts at batch ``first``, as :meth:`Loader.epoch_from`."""
        return map(self._made, self.loader.epoch_from(epoch, first))

    def __len__(self) -> int:
        return len(self.loader)

    def _made(self, batch: Any) -> Any:
        return shard(batch, self.sharding)


def sharded(loader: Loader, sharding: Any) -> Sharded:
    """Returns a loader of global arrays with this sharding. Its batches are tuples or dicts without the
    properties of a batch. Use :func:`shard` for batches with such properties.

    Every process opens a loader with its ``rank``, in host memory. All ranks need batches of the same
    size, so incomplete last batches must be dropped or padded.

    Raises:
        ConfigError: for batches of torch or on a device, for ``last_batch="keep"`` with several
            processes, and for a rank that differs from the rank in JAX.
        TypeError: for an object that is not a sharding, such as a mesh.
    """
    jax = _jax()
    _check(loader, jax.process_index(), jax.process_count())
    if not hasattr(sharding, "addressable_devices_indices_map"):
        raise TypeError(
            f"sharding is a {type(sharding).__name__}: expected a jax.sharding.Sharding, such as "
            "NamedSharding(mesh, PartitionSpec('batch'))"
        )
    return Sharded(loader, sharding)


def _check(loader: Loader, process: int, processes: int) -> None:
    if loader.device is not None or loader._delivery.is_torch:
        found = "are on a device" if loader.device is not None else "are tensors of torch"
        raise ConfigError(
            f"the batches {found}, and JAX needs arrays in host memory; pass output='numpy' and no device to the loader"
        )
    if (loader.rank, loader.world_size) != (process, processes):
        raise ConfigError(
            f"the loader is rank {loader.rank} of {loader.world_size}, and this is process {process} of {processes} of "
            "JAX; pass rank=jax.process_index(), world_size=jax.process_count()"
        )
    whole = loader._arguments.get("global_batch_size")
    if whole is not None and whole % processes:
        raise ConfigError(f"global_batch_size={whole}: expected a multiple of the number of processes, {processes}")
    if processes > 1 and not loader.drop_last and loader._arguments.get("last_batch") != "pad":
        raise ConfigError("the last batch may differ between processes; pass drop_last=True or last_batch='pad'")
