"""Batches as global arrays of JAX: ``import warpfeed.jax``.

::

    mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    loader = warpfeed.Loader(
        "imagenet/train", global_batch_size=1024, shuffle=42, drop_last=True, normalize="imagenet", output="numpy",
        rank=jax.process_index(), world_size=jax.process_count(),
    )
    for images, labels in warpfeed.jax.sharded(loader, sharding):
        state = step(state, images, labels)  # each device has its part of the batch

The facts of a batch, such as ``valid`` and ``ids``, are those of the loader's own batches::

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

    The arrays of this process become its part of the global arrays: the first axis of the global
    array joins the processes in the order of their numbers. Only the device that needs a part of the batch
    gets it. The parts are copied, so the memory of the loader is free again when the arrays are on
    their devices; this function waits for that.

    Args:
        batch: a batch with ``output="numpy"`` or ``"dlpack"``, or nested dicts, lists and tuples of
            arrays.
        sharding: a ``jax.sharding.Sharding``.

    Raises:
        ConfigError: if the devices cannot share the batch evenly, or the devices of this process do not
            hold exactly its part.
    """
    jax = _jax()
    made = _mapped(batch, lambda array: _global(array, sharding, jax))
    return jax.block_until_ready(made)


def _jax() -> Any:
    """The package, which is imported on use. Type checkers do not read it."""
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
        # JAX's text for a spec with too many axes is that of the list.
        cause = "it has more axes than the array" if isinstance(e, IndexError) else e
        raise ConfigError(f"an array of shape {shape} cannot be sharded like {sharding}: {cause}") from e
    parts = []
    for device, place in places.items():
        start, end, _ = place[0].indices(shape[0]) if place else (0, shape[0], 1)
        if not first <= start <= end <= first + array.shape[0]:
            raise ConfigError(
                f"{device} needs the samples {start} to {end} of the global batch, and process {jax.process_index()} has "
                f"{first} to {first + array.shape[0]}: the first axis of the mesh must follow the processes"
            )
        # A copy: on the CPU, JAX would share the memory of the batch, which becomes another batch's.
        own = np.array(array[(slice(start - first, end - first), *place[1:])])
        parts.append(jax.device_put(own, device))
    return jax.make_array_from_single_device_arrays(shape, sharding, parts)


def _check_range(array: Any, jax: Any) -> None:
    """JAX without 64-bit types cuts integers without an error."""
    if array.dtype.itemsize < 8 or array.dtype.kind not in "iu" or jax.config.jax_enable_x64 or array.size == 0:
        return
    low, high = int(array.min()), int(array.max())
    if low < -(1 << 31) or high >= 1 << 31:
        raise ConfigError(
            f"integers from {low} to {high} do not fit the 32 bits of JAX: call jax.config.update('jax_enable_x64', True)"
        )


class Sharded:
    """A loader whose batches are global arrays: :func:`sharded`."""

    def __init__(self, loader: Loader, sharding: Any) -> None:
        self.loader, self.sharding = loader, sharding

    def __iter__(self) -> Iterator[Any]:
        return map(self._made, self.loader)

    def epoch_from(self, epoch: int, first: int) -> Iterator[Any]:
        """Returns an iterator over epoch ``epoch`` from batch ``first`` on, as that of the loader."""
        return map(self._made, self.loader.epoch_from(epoch, first))

    def __len__(self) -> int:
        return len(self.loader)

    def _made(self, batch: Any) -> Any:
        return shard(batch, self.sharding)


def sharded(loader: Loader, sharding: Any) -> Sharded:
    """Returns a loader whose batches are global arrays with this sharding: tuples or dicts without the
    facts of a batch. :func:`shard` takes one batch with the facts that are needed.

    Every process opens a loader with its ``rank``, on the host. All ranks need batches of one
    size, so incomplete last batches are dropped or padded.

    Raises:
        ConfigError: for batches of torch or on a device, for ``last_batch="keep"`` with several
            processes, and for a rank other than that of JAX.
        TypeError: for a sharding that is none, such as a mesh.
    """
    jax = _jax()
    _check(loader, jax.process_index(), jax.process_count())
    if not hasattr(sharding, "addressable_devices_indices_map"):
        raise TypeError(
            f"sharding is a {type(sharding).__name__}: want a jax.sharding.Sharding, such as "
            "NamedSharding(mesh, PartitionSpec('batch'))"
        )
    return Sharded(loader, sharding)


def _check(loader: Loader, process: int, processes: int) -> None:
    if loader.device is not None or loader._delivery.is_torch:
        found = "are on a device" if loader.device is not None else "are tensors of torch"
        raise ConfigError(
            f'the batches {found}, and JAX takes arrays of the host: pass output="numpy" and no device to the loader'
        )
    if (loader.rank, loader.world_size) != (process, processes):
        raise ConfigError(
            f"the loader is rank {loader.rank} of {loader.world_size}, and this is process {process} of {processes} of "
            "JAX: pass rank=jax.process_index(), world_size=jax.process_count()"
        )
    whole = loader._arguments.get("global_batch_size")
    if whole is not None and whole % processes:
        raise ConfigError(f"global_batch_size={whole}: want a multiple of the number of processes, {processes}")
    if processes > 1 and not loader.drop_last and loader._arguments.get("last_batch") != "pad":
        raise ConfigError('the last batch may differ between processes: pass drop_last=True or last_batch="pad"')
