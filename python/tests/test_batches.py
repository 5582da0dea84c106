"""Compares batches with the batches of the Rust loader, and tests outputs, ranks, resuming,
subsets, mixtures and transforms."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import warpfeed
from conftest import Images, contents, rust_batches
from warpfeed import Augment, Loader, NdArray, WarpfeedError


SETTINGS = [
    {"batch_size": 16, "shuffle": 42, "side": 64, "dtype": "u8"},
    {"batch_size": 10, "shuffle": 7, "side": 48, "dtype": "f32", "normalize": True},
    {"batch_size": 10, "shuffle": 7, "side": 48, "dtype": "f16", "layout": "nchw", "drop_last": True},
    {"batch_size": 7, "side": 33, "dtype": "bf16", "normalize": True, "layout": "nchw"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: s["dtype"])
def test_batches_equal_the_rust_loader_bit_for_bit(mini: str, settings: dict) -> None:
    expected = rust_batches({"data": mini, "epochs": 2, **settings})
    loader = Loader(
        mini, batch_size=settings["batch_size"], shuffle="shuffle" in settings, seed=settings.get("shuffle"), num_workers=1,
        augment=Augment.train(settings["side"]), dtype=settings["dtype"], layout=settings.get("layout", "nhwc"),
        normalize="imagenet" if settings.get("normalize") else None, drop_last=settings.get("drop_last", False),
        output="numpy",
    )  # fmt: skip
    actual = contents(loader, 2)
    assert actual == expected and len(actual) > 6


def test_torch_tensors_are_channels_last_views_of_the_same_bytes(mini: str, torch: Any) -> None:
    options = {"batch_size": 16, "shuffle": True, "seed": 1, "augment": Augment.train(32), "normalize": "imagenet"}
    arrays = [images.copy() for images, _ in Loader(mini, output="numpy", **options)]
    for expected, (images, labels) in zip(arrays, Loader(mini, **options), strict=True):
        assert isinstance(images, torch.Tensor) and images.shape == (16, 3, 32, 32)
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert labels.dtype == torch.int64 and labels.shape == (16,)
        assert torch.equal(images.permute(0, 2, 3, 1), torch.from_numpy(expected))
    for layout, shape in [
        ("nhwc", (16, 32, 32, 3)),
        ("nchw", (16, 3, 32, 32)),
        (torch.contiguous_format, (16, 3, 32, 32)),
    ]:
        images, _ = next(iter(Loader(mini, layout=layout, **options)))
        assert images.shape == shape and images.is_contiguous()
    images, _ = next(iter(Loader(mini, **{**options, "dtype": torch.bfloat16})))
    assert images.dtype == torch.bfloat16
    # A network must accept the tensor, and the tensor must be writable.
    images.mul_(2)
    assert torch.nn.Conv2d(3, 4, 3).bfloat16()(images).shape == (16, 4, 30, 30)


def test_both_versions_of_dlpack_and_numpy_see_the_same_memory(mini: str) -> None:
    batch = next(
        iter(
            Loader(mini, batch_size=16, augment=Augment.train(64), output="dlpack", layout="channels_last", copy=False)
        )
    )
    field = batch.images
    assert field.shape == [16, 3, 64, 64] and field.dtype == "uint8" and field.__dlpack_device__() == (1, 0)
    plain = np.asarray(field)
    assert plain.ctypes.data == field.data_ptr() and plain.strides == (64 * 64 * 3, 1, 64 * 3, 3)
    shared = np.from_dlpack(field)
    assert shared.ctypes.data == field.data_ptr() and np.array_equal(shared, plain)
    for version, name in [(None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned")]:
        capsule = field.__dlpack__(max_version=version)
        assert f'"{name}"' in repr(capsule)
        del capsule
    with pytest.raises(BufferError):
        field.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        field.__dlpack__(copy=True)


def test_each_iter_is_the_next_epoch_unless_one_was_set(packed: str) -> None:
    loader = Loader(packed, batch_size=16, shuffle=True, seed=3, augment=Augment.train(32), output="numpy")
    assert len(loader) == 4 and len(loader.dataset) == 64 and len(loader.classes) == 4
    first, second = contents(loader), contents(loader)
    assert {c[0] for c in first} == {0} and {c[0] for c in second} == {1}
    assert [c[2] for c in first] != [c[2] for c in second], "the second epoch must have a different order"
    loader.sampler.set_epoch(0)
    assert contents(loader) == first
    assert contents(loader) == second
    # Leaving a loop ends its epoch. The epoch may be set until the first batch is requested:
    # Lightning creates two iterators and then sets the epoch.
    next(iter(loader))
    assert loader.epoch == 3
    iter(loader), (late := iter(loader))
    assert loader.epoch == 3
    loader.set_epoch(1)
    assert [batch.epoch for batch in late] == [1] * 4 and loader.epoch == 2
    again = Loader(packed, batch_size=16, shuffle=True, seed=3, augment=Augment.train(32), output="numpy", num_workers=1)
    assert contents(again, 2) == first + second


@pytest.mark.parametrize("stop", [0, 1, 3, 4, 6])
def test_a_state_resumes_after_the_last_delivered_batch(mini: str, stop: int) -> None:
    options = {"batch_size": 16, "shuffle": True, "seed": 3, "augment": Augment.train(32), "output": "numpy"}
    unbroken = contents(Loader(mini, **options), 3)
    run = Loader(mini, **options)
    seen, state = [], None
    while len(seen) < stop:
        for batch in run:
            seen.append(np.asarray(batch.images).tobytes())
            if len(seen) == stop:
                state = run.state_dict()
                break
    state = json.loads(json.dumps(state or run.state_dict()))
    assert seen == [c[3]["image"] for c in unbroken[:stop]]

    fresh, loaded = Loader(mini, resume=state, num_workers=1, **options), Loader(mini, **options)
    next(iter(loaded))
    loaded.load_state_dict(state)
    for resumed in (fresh, loaded):
        assert resumed.state_dict() == state
        rest = []
        while len(rest) < len(unbroken) - stop:
            rest += contents(resumed)
        assert rest == unbroken[stop:]
    loaded.load_state_dict(state)
    rest = []
    for epoch in range(3):
        loaded.set_epoch(epoch)
        rest += contents(loaded)
    assert rest == unbroken[stop:]

    other = Loader(mini, **{**options, "shuffle": True, "seed": 4})
    with pytest.raises(WarpfeedError, match="the seed differs: the checkpoint has 3, this loader has 4"):
        other.load_state_dict(state)
    assert len(contents(other)) == 4, "a failed call must not change the position"


def test_states_are_elastic_and_ranks_share_the_global_batches(mini: str) -> None:
    options = {"global_batch_size": 12, "shuffle": True, "seed": 3, "augment": Augment.train(32), "output": "numpy"}
    alone = contents(Loader(mini, **options), 2)
    ranks = [Loader(mini, rank=rank, world_size=3, **options) for rank in range(3)]
    assert [loader.rank for loader in ranks] == [0, 1, 2] and {loader.world_size for loader in ranks} == {3}
    parts = [contents(loader, 2) for loader in ranks]
    together = [sum((list(part[i][2]) for part in parts), []) for i in range(len(alone))]
    assert together == [c[2] for c in alone]
    stopped = Loader(mini, rank=1, world_size=3, **options)
    it = iter(stopped)
    next(it), next(it)
    assert contents(Loader(mini, resume=stopped.state_dict(), **options)) == alone[2:6]


def test_ranks_come_from_the_environment_on_request(mini: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"batch_size": 8, "augment": Augment.train(32), "output": "numpy"}
    with pytest.raises(WarpfeedError, match="neither Ray Train nor a launcher"):
        Loader(mini, distributed=True, **options)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(WarpfeedError, match="pass distributed=True"):
        Loader(mini, **options)
    shared = Loader(mini, distributed=True, **options)
    assert (shared.rank, shared.world_size, len(shared)) == (1, 2, 4)
    assert len(Loader(mini, distributed=False, **options)) == 8


def test_subsets_weights_and_mixtures_choose_the_samples(mini: str, packed: str) -> None:
    options = {"batch_size": 8, "augment": Augment.train(32), "output": "numpy"}
    assert [c[2] for c in contents(Loader(mini, subset=range(0, 64, 8), **options))] == [list(range(0, 64, 8))]
    train, val = warpfeed.split(64, [0.75, 0.25], seed=1)
    assert len(train) == 48 and sorted(train + val) == list(range(64))
    labels = [i // 16 for i in range(64)]
    for part in warpfeed.split(64, [0.5, 0.5], seed=1, labels=labels):
        assert [sum(labels[i] == label for i in part) for label in range(4)] == [8] * 4
    drawn = sum((c[2] for c in contents(Loader(mini, weights=[1.0] + [0.0] * 63, seed=1, **options))), [])
    assert set(drawn) == {0}
    mixture = Loader([(mini, 0.75), (packed, 0.25)], seed=1, **options)
    ids = sum((c[2] for c in contents(mixture)), [])
    assert len(ids) == 128 and sum(mixture.dataset_index(i) for i in ids) == pytest.approx(32, abs=12)
    assert len(Loader(mini, repeat=3, **options)) == 24
    padded = Loader(mini, last_batch="pad", **{**options, "batch_size": 24})
    assert [sum(batch.valid) for batch in padded] == [24, 24, 16]


def test_additional_fields_make_the_batch_a_dict(mini: str) -> None:
    source = Images(12, "dict")
    loader = Loader(
        source, batch_size=4, augment=Augment.resize(8, 8), output="numpy", fields={"emb": NdArray("f32", [2])}
    )
    for batch in loader:
        assert isinstance(batch, dict) and set(batch) == {"image", "label", "emb"} and batch["emb"].shape == (4, 2)
        assert batch.sample_keys == [f"no/{i}" for i in batch.ids]
    mixed = Loader(
        mini,
        batch_size=16,
        augment=Augment.train(32).mix(warpfeed.Mix.cutmix(1.0)),
        soft_labels=(4, 0.1),
        shuffle=True, seed=1,
        output="numpy",
    )
    batch = next(iter(mixed))
    assert (
        np.allclose(batch["soft_label"].sum(1), 1) and batch.mixing is not None and batch["soft_label"].shape == (16, 4)
    )
    bare = next(iter(Loader(mini, batch_size=16, drop_field=["label"], output="numpy")))
    assert list(bare) == ["image"]


def test_transforms_run_on_whole_batches_in_their_order(mini: str) -> None:
    options = {"batch_size": 16, "augment": Augment.train(32), "output": "numpy"}
    plain, _ = next(iter(Loader(mini, **options)))
    steps = [lambda x, y: (x.astype("f4"), y), lambda x, y: (x * 2, y + 100)]
    images, labels = next(iter(Loader(mini, batch_transform=steps, **options)))
    assert np.array_equal(images, plain.astype("f4") * 2) and labels.min() >= 100


def test_bfloat16_in_numpy_is_its_bits_without_ml_dtypes(mini: str) -> None:
    options: dict[str, Any] = {"batch_size": 4, "augment": Augment.train(32), "output": "numpy"}
    images, values = (next(iter(Loader(mini, dtype=dtype, **options)))[0] for dtype in ("bf16", "f32"))
    assert images.dtype.name in ("uint16", "bfloat16") and images.shape == (4, 32, 32, 3)
    upper_bits = images.view(np.uint16).astype(np.uint32) << 16
    assert np.allclose(upper_bits.view(np.float32), values, rtol=1 / 256)
