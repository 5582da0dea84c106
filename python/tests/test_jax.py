"""Tests that ``warpfeed.jax`` delivers global arrays that are sharded over several JAX devices, and
bit-identical to the loader's batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import need, ran
from warpfeed import Augment, ConfigError, Loader

need("jax")

FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}


def test_batches_are_sharded_over_four_devices(mini: str) -> None:
    code = """
        import sys
        import jax, numpy as np, warpfeed, warpfeed.jax
        from jax.sharding import NamedSharding, PartitionSpec as P

        assert jax.device_count() == 4
        options = {"batch_size": 16, "shuffle": True, "seed": 3, "augment": warpfeed.Augment.train(32), "output": "numpy",
                   "normalize": "imagenet", "fields": {"again": warpfeed.Image()}}
        plain = [{name: array.copy() for name, array in batch.items()} for batch in warpfeed.Loader(sys.argv[1], **options)]
        meshes = [(jax.make_mesh((4,), ("batch",)), P("batch")), (jax.make_mesh((2, 2), ("batch", "model")), P("batch")),
                  (jax.make_mesh((2, 2), ("batch", "model")), P()), (jax.make_mesh((4,), ("x",)), P(None))]
        for mesh, spec in meshes:
            sharding = NamedSharding(mesh, spec)
            loader = warpfeed.Loader(sys.argv[1], **options)
            kept = list(warpfeed.jax.sharded(loader, sharding))
            # Compare all batches after the loader has reused its memory.
            again = list(loader)
            assert len(kept) == len(plain) == 4
            for batch, expected in zip(kept, plain):
                assert batch.keys() == expected.keys() == {"image", "label", "again"}
                for name, array in batch.items():
                    assert isinstance(array, jax.Array) and array.sharding == sharding and len(array.addressable_shards) == 4
                    assert np.array_equal(np.asarray(array), expected[name]), name
                    for shard in array.addressable_shards:
                        assert np.array_equal(np.asarray(shard.data), expected[name][shard.index])
        mesh = jax.make_mesh((2, 2), ("batch", "rows"))
        images, labels = warpfeed.jax.shard((plain[0]["image"], plain[0]["label"]), NamedSharding(mesh, P("batch")))
        mean = jax.jit(lambda x: x.mean())(images)
        assert abs(float(mean) - plain[0]["image"].mean()) < 1e-5
        rows = warpfeed.jax.shard(plain[0]["image"], NamedSharding(mesh, P("batch", "rows")))
        assert {shard.data.shape for shard in rows.addressable_shards} == {(8, 16, 32, 3)}
        assert np.array_equal(np.asarray(rows), plain[0]["image"])
        one = warpfeed.jax.sharded(warpfeed.Loader(sys.argv[1], **options), NamedSharding(mesh, P("batch")))
        assert [np.array_equal(np.asarray(batch["image"]), plain[2 + n]["image"]) for n, batch in
                enumerate(one.epoch_from(0, 2))] == [True, True] and len(one) == 4
        large = warpfeed.jax.shard(np.full(8, 2**32 - 1, "u8"), NamedSharding(mesh, P("batch")))
        assert np.asarray(large).tolist() == [2**32 - 1] * 8
        # Batches that cannot be divided and integers that JAX would truncate must be rejected.
        for wrong, text in [
            (np.zeros((6, 2), "f4"), "does not fit an array of shape (6, 2)"),
            (np.full(8, 2**40), "do not fit in the 32 bits"),
            ({"loss": np.array(3)}, "array(3) has no axes"),
            (np.full(8, 2**32, "u8"), "do not fit in the 32 bits"),
        ]:
            try:
                warpfeed.jax.shard(wrong, NamedSharding(jax.make_mesh((4,), ("batch",)), P("batch")))
                raise SystemExit("no error")
            except warpfeed.ConfigError as e:
                assert text in str(e), e
        try:
            warpfeed.jax.shard(np.zeros(8, "f4"), NamedSharding(mesh, P("batch", "rows")))
            raise SystemExit("no error")
        except warpfeed.ConfigError as e:
            assert "more axes than the array" in str(e), e
        print("done")
    """
    assert ran(code, mini, **FOUR).endswith("done\n")


def test_jax_processes_assemble_global_batches(mini: str, tmp_path: Path) -> None:
    import socket
    import subprocess
    import sys
    import textwrap

    code = """
        import sys, jax, numpy as np, warpfeed, warpfeed.jax
        from jax.sharding import NamedSharding, PartitionSpec as P
        rank, path, port = int(sys.argv[1]), sys.argv[2], sys.argv[3]
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
        sharding = NamedSharding(jax.make_mesh((4,), ("batch",)), P("batch"))
        options = {"shuffle": True, "seed": 3, "augment": warpfeed.Augment.train(32), "output": "numpy", "distributed": False}
        whole = [(i.copy(), l.copy()) for i, l in warpfeed.Loader(path, batch_size=16, **options)]
        options.pop("distributed")
        loader = warpfeed.Loader(path, global_batch_size=16, drop_last=True, rank=rank, world_size=2, **options)
        count = 0
        for (images, labels), expected in zip(warpfeed.jax.sharded(loader, sharding), whole):
            assert images.shape == (16, 32, 32, 3) and not images.is_fully_addressable
            for shard in images.addressable_shards:
                assert np.array_equal(np.asarray(shard.data), expected[0][shard.index])
            total = jax.jit(lambda x: x.sum())(labels)
            assert int(total) == int(expected[1].sum())
            count += 1
        assert count == 4
        print("done")
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "work.py"
    script.write_text(textwrap.dedent(code))
    import os

    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    started = [
        subprocess.Popen(
            [sys.executable, script, str(rank), mini, str(port)], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        outputs = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0] and all("done" in text for text in outputs), outputs


def test_loaders_that_jax_cannot_use_are_rejected(mini: str) -> None:
    from warpfeed.jax import sharded

    options = {"batch_size": 16, "augment": Augment.resize(8)}
    need("torch")
    with pytest.raises(ConfigError, match="pass output='numpy'"):
        sharded(Loader(mini, **options), None)
    with pytest.raises(ConfigError, match="the loader is rank 1 of 2, but this is process 0 of 1"):
        sharded(Loader(mini, output="numpy", rank=1, world_size=2, **options), None)
    with pytest.raises(ConfigError, match="the batches are torch tensors"):
        sharded(Loader(mini, output="torch", **options), None)
    with pytest.raises(TypeError, match="sharding is a str: expected a jax.sharding.Sharding"):
        sharded(Loader(mini, output="numpy", **options), "batch")
