"""Tests that the result of a transform becomes the batch, that an invalid result raises an error
that describes it, and that a resumed run passes the same seeds to the transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import Images
from warpfeed import Augment, Loader, Mix, NdArray, WarpfeedError

OPTIONS = {"batch_size": 16, "augment": Augment.train(32), "output": "numpy"}


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x, y: x, r"returned numpy.ndarray of shape \(16, 32, 32, 3\)"),
        (lambda x, y: (x,), "returned a tuple of 1"),
        (lambda x, y: [x, y, y], "returned a list of 3"),
        (lambda x, y: None, "returned NoneType"),
        (lambda x, y: "xy", "returned str"),
        (lambda x, y: {}, "returned an empty dict"),
        (lambda x, y: {0: x}, "returned a dict with the key 0"),
    ],
)  # fmt: skip
def test_a_result_that_is_not_a_batch_fails_with_its_value(mini: str, f: Any, expected: str) -> None:
    prefix = r"batch_transform\[1\] \(<lambda>\) at batch 0 of epoch 0 \(samples 0, 1, .*\): TypeError: the function"
    with pytest.raises(WarpfeedError, match=rf"{prefix} {expected}: expected \(images, labels\), or a dict") as raised:
        next(iter(Loader(mini, batch_transform=[lambda x, y: (x, y), f], **OPTIONS)))
    assert raised.value.kind == "transform" and isinstance(raised.value.__cause__, TypeError)


def test_a_pair_may_become_a_dict_and_a_dict_a_pair(mini: str) -> None:
    images, labels = next(iter(Loader(mini, **OPTIONS)))
    renamed = Loader(mini, batch_transform=lambda x, y: {"pixel_values": x, "labels": y}, **OPTIONS)
    batch = next(iter(renamed))
    assert isinstance(batch, dict) and list(batch) == ["pixel_values", "labels"] and batch.batch_index == 0
    assert np.array_equal(batch["pixel_values"], images) and np.array_equal(batch["labels"], labels)
    steps = [lambda x, y: {"x": x, "y": y}, lambda fields: [fields["x"], fields["y"]], lambda x, y: (x, y + 1)]
    batch = next(iter(Loader(mini, batch_transform=steps, **OPTIONS)))
    assert np.array_equal(batch.images, images) and np.array_equal(batch.labels, labels + 1)


def test_a_transform_returns_images_with_soft_labels(mini: str) -> None:
    mixed = {**OPTIONS, "augment": Augment.train(32).mix(Mix.mixup(0.2)), "soft_labels": (4, 0.1)}
    for images, rows in Loader(mini, batch_transform=lambda fields: (fields["image"], fields["soft_label"]), **mixed):
        assert images.shape[0] == rows.shape[0] and rows.shape[1] == 4


def test_a_transform_that_is_not_callable_is_refused(mini: str) -> None:
    for invalid in [3, "f", [3], {"f": len}]:
        with pytest.raises(TypeError, match="^batch_transform.*: expected a function"):
            Loader(mini, batch_transform=invalid, **OPTIONS)

    def with_batch(images, labels, *, batch):  # type: ignore[no-untyped-def]
        return images, labels

    with pytest.raises(TypeError, match=r"batch_transform\[0\] \(with_batch\) requires .* parameter 'batch', but the loader passes only 'epoch', 'batch_index' and 'seed'; give"):
        Loader(mini, batch_transform=with_batch, **OPTIONS)


def noise(images, labels, *, seed):  # type: ignore[no-untyped-def]
    drawn = np.random.default_rng(seed).normal(size=images.shape)
    return images + drawn, labels


def test_random_numbers_of_a_transform_continue_after_a_resume(mini: str) -> None:
    loader = Loader(mini, shuffle=True, seed=3, batch_transform=noise, **OPTIONS)
    complete = [images for _ in range(2) for images, _ in loader]
    killed = Loader(mini, shuffle=True, seed=3, batch_transform=noise, **OPTIONS)
    list(killed)
    it = iter(killed)
    next(it)
    again = Loader(mini, shuffle=True, seed=3, batch_transform=noise, resume=killed.state_dict(), num_workers=1, **OPTIONS)
    rest = [images for images, _ in again]
    assert len(rest) == 3 and all(np.array_equal(a, b) for a, b in zip(rest, complete[5:], strict=True))


def test_a_transform_gets_its_named_parameters_and_seed(mini: str) -> None:
    received: list[tuple[int, int, int]] = []

    def ask(images, labels, *, epoch, batch_index, seed, scale=1.0):  # type: ignore[no-untyped-def]
        received.append((epoch, batch_index, seed))
        return images, labels

    for rank in range(2):
        loader = Loader(mini, seed=5, rank=rank, world_size=2, batch_transform=[ask, ask], **OPTIONS)
        for _ in range(2):
            for batch in loader:
                assert received[-1][:2] == (batch.epoch, batch.batch_index)
    seeds = [seed for _, _, seed in received]
    assert len(set(seeds)) == len(seeds) == 2 * 2 * 2 * 2 and all(0 <= seed < 1 << 63 for seed in seeds)


def test_unlabeled_data_needs_no_option_to_open(mini: str) -> None:
    loader = Loader(Images(8, "unlabeled"), batch_size=4, augment=Augment.resize(8, 8), output="numpy",
                    fields={"emb": NdArray("f32", [2])})  # fmt: skip
    for batch in loader:
        assert list(batch) == ["image", "emb"]
        with pytest.raises(WarpfeedError, match="no label.*unlabeled=True"):
            batch["label"]
        with pytest.raises(KeyError, match="'other'"):
            batch["other"]
    loader = Loader(Images(8, "unlabeled"), batch_size=4, augment=Augment.resize(8, 8), output="numpy",
                    fields={"emb": NdArray("f32", [2])}, unlabeled=True)  # fmt: skip
    assert [batch["label"].tolist() for batch in loader] == [[-1] * 4] * 2
