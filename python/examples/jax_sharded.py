"""Feeds all JAX devices of a process from one loader: python/examples/jax_sharded.py FOLDER

On a CPU, XLA_FLAGS=--xla_force_host_platform_device_count=4 simulates four devices.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import warpfeed
import warpfeed.jax
from jax.sharding import NamedSharding, PartitionSpec


@jax.jit
def step(weights, images, labels):  # type: ignore[no-untyped-def]
    def loss(weights):  # type: ignore[no-untyped-def]
        scores = images.mean((1, 2)) @ weights
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean()

    value, gradient = jax.value_and_grad(loss)(weights)
    return value, weights - 0.1 * gradient


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    args = parser.parse_args()
    mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("batch"))
    loader = warpfeed.Loader(
        args.folder, global_batch_size=16, shuffle=True, seed=42, augment=warpfeed.Augment.train(32), normalize="imagenet",
        drop_last=True, output="numpy", rank=jax.process_index(), world_size=jax.process_count(),
    )  # fmt: skip
    weights = jax.device_put(jnp.zeros((3, len(loader.classes))), NamedSharding(mesh, PartitionSpec()))
    for images, labels in warpfeed.jax.sharded(loader, sharding):
        value, weights = step(weights, images, labels)
    print(f"loss {float(value):.3f} on {jax.device_count()} devices")


if __name__ == "__main__":
    main()
