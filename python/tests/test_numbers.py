"""Promise: `subset` and `weights` take any list of numbers, and long arrays without an object for each
number. What cannot be an index is an error that names its place."""

from __future__ import annotations

import array
import re
from typing import Any

import numpy as np
import pytest
from conftest import Images
from warpfeed import Augment, ConfigError, Loader, WarpfeedError, pack, split
from warpfeed._numbers import PIECE, Indices, Numbers

OPTIONS: dict[str, Any] = {"batch_size": 8, "augment": Augment.resize(8), "output": "numpy", "num_workers": 1}


def ids(**more: Any) -> list[int]:
    return [id for batch in Loader(Images(40), **OPTIONS, **more) for id in batch.ids]


def test_every_kind_of_list_is_the_same_subset_and_the_same_weights(torch: Any) -> None:
    chosen = [3, 39, 0, 7, 7]
    typed = [lambda x, dtype=dtype: np.array(x, dtype) for dtype in (np.uint8, ">i2", object)]
    lists = [lambda x: array.array("q", x), lambda x: [np.int32(i) for i in x], dict.fromkeys]
    for kind in (list, tuple, iter, np.array, torch.tensor, *typed, *lists):
        expected = [3, 39, 0, 7] if isinstance(kind(chosen), dict) else chosen
        assert ids(subset=kind(chosen)) == expected, kind
    weights = [0.5 if i % 3 == 0 else 0.0 for i in range(40)]
    drawn = ids(weights=weights, seed=2)
    assert all(id % 3 == 0 for id in drawn)
    for kind in (tuple, iter, np.array, torch.tensor, lambda x: np.array(x, np.float16), lambda x: np.array(x) > 0):
        assert ids(weights=kind(weights), seed=2) == drawn, kind


@pytest.mark.parametrize(
    ("subset", "error", "message"),
    [
        ([0, 1, -2], ConfigError, "subset: entry 2 is -2, want an index from 0"),
        (np.array([0, -1]), ConfigError, "subset: entry 1 is -1"),
        ([0, 1.5], TypeError, "subset: entry 1 is 1.5, want a whole number"),
        ([0, 1.0], TypeError, "subset: entry 1 is 1.0, want a whole number"),
        ([0, float("nan")], TypeError, "subset: entry 1 is nan, want a whole number"),
        ([True, 2], TypeError, "subset: entry 0 is True, want a whole number"),
        ((2, np.True_), TypeError, "subset: entry 1 is .*True_?, want a whole number"),
        (np.array([2, True], object), TypeError, "subset: entry 1 is True, want a whole number"),
        ([[1], [2, 3]], TypeError, "subset: the entries are lists of several lengths"),
        (np.array([1.0]), TypeError, "subset: entry 0 is 1.0"),
        (["a"], TypeError, "subset: entry 0 is 'a'"),
        (np.arange(40) > 7, TypeError, "True and False; the indices of a mask are numpy.flatnonzero"),
        ([True, False], TypeError, r"True and False; .* mask\.nonzero\(\)"),
        (np.zeros((2, 2), int), TypeError, r"subset: the shape is \(2, 2\)"),
        ([1 << 64], ConfigError, f"subset: entry 0 is {1 << 64}"),
        ([40], ConfigError, "subset: entry 0 is sample 40, but the source has 40 samples"),
        ([], ConfigError, "subset: no samples"),
    ],
)
def test_what_is_no_index_is_an_error_with_its_place(subset: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ids(subset=subset)


@pytest.mark.parametrize(
    ("order", "error", "message"),
    [
        (np.arange(40) > 7, TypeError, r"order\(0\): the values are True and False; .*flatnonzero.* mask\.nonzero\(\)"),
        ([True, False], TypeError, r"order\(0\): the values are True and False"),
        ([0, 1.5], TypeError, r"order\(0\): entry 1 is 1.5, want a whole number"),
        ([True, 2], TypeError, r"order\(0\): entry 0 is True, want a whole number"),
        ([2, np.True_], TypeError, r"order\(0\): entry 1 is .*True_?, want a whole number"),
        ([5, 1 << 63, 1], ConfigError, f"the order gives sample {1 << 63} in batch 0 of epoch 0; the source has 40"),
        ([40], ConfigError, "the order gives sample 40 in batch 0 of epoch 0; the source has 40"),
        (np.array([1.0]), TypeError, r"order\(0\): entry 0 is 1.0"),
        ("0123", TypeError, r"order\(0\): '0123', want a list of whole numbers"),
        (["1"], TypeError, r"order\(0\): entry 0 is '1'"),
        (None, TypeError, r"order\(0\): None, want a list of whole numbers"),
        (np.array(3), TypeError, r"order\(0\): array\(3\), want a list of whole numbers"),
        (np.zeros((2, 1), int), TypeError, r"order\(0\): the shape is \(2, 1\)"),
        ([0, -1], ConfigError, r"order\(0\): entry 1 is -1, want an index from 0"),
    ],
)
def test_an_order_returns_indices_and_no_mask(order: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(WarpfeedError, match=message) as raised:
        ids(order=lambda epoch: order)
    if not message.startswith("the order gives"):
        assert raised.value.kind == "transform" and isinstance(raised.value.__cause__, error)


def test_tensors_are_indices_and_labels_but_no_masks(torch: Any) -> None:
    mask = torch.arange(40) % 9 == 0
    chosen = [0, 9, 18, 27, 36]
    for order in (mask.nonzero().flatten(), np.flatnonzero(mask), [torch.tensor(i) for i in chosen]):
        assert ids(order=lambda epoch, order=order: order) == chosen
    assert ids(order=lambda epoch: iter(chosen)) == chosen
    with pytest.raises(WarpfeedError, match=r"order\(0\): the values are True and False"):
        ids(order=lambda epoch: mask)
    with pytest.raises(WarpfeedError, match=r"order\(0\): entry 1 is tensor\(True\), want a whole number"):
        ids(order=lambda epoch: [torch.tensor(3), mask[0]])


def test_an_index_that_comes_again_is_another_variant_of_its_sample() -> None:
    image = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)

    class One(Images):
        def __getitem__(self, index: int) -> object:
            return image, 0

    options = {**OPTIONS, "augment": Augment.train(8)}
    for again in ({"subset": [0, 0]}, {"order": lambda epoch: [0, 0]}):
        [[images, _]] = Loader(One(1), **options, **again)
        assert (images[0] != images[1]).any(), again


def test_epochs_batches_and_samples_are_whole_numbers_from_0() -> None:
    loader = Loader(Images(40), **OPTIONS)
    calls = [
        ("epoch", loader.set_epoch),
        ("epoch", lambda n: loader.epoch_from(n, 0)),
        ("first", lambda n: loader.epoch_from(0, n)),
        ("num_batches", loader.skip_first_batches),
        ("n", loader.replay),
        ("id", loader.sample),
        ("id", loader.part),
    ]
    for name, call in calls:
        for wrong in (1.5, 1.0, True, np.True_, "1", None):
            with pytest.raises(TypeError, match=f"^{name}={re.escape(repr(wrong))}: want a whole number"):
                call(wrong)
        with pytest.raises(ConfigError, match=f"^{name}=-1: want a whole number from 0"):
            call(-1)
    loader.set_epoch(np.int64(3))
    assert loader.epoch == 3


def test_a_split_takes_indices_and_labels_of_any_list_and_no_masks(torch: Any) -> None:
    labels = [-1, 0, 1, 1, 0, -1, 0, 1]
    expected = split(8, [0.5, 0.5], seed=1, labels=labels)
    for kind in (np.array, torch.tensor, tuple, iter):
        assert split(kind(range(8)), [0.5, 0.5], seed=1, labels=kind(labels)) == expected, kind
    for mask in (np.array(labels) > 0, torch.tensor(labels) > 0, [True] * 8):
        with pytest.raises(TypeError, match=r"^samples: the values are True and False; the indices of a mask"):
            split(mask, [1.0], seed=1)
        with pytest.raises(TypeError, match=r"^labels: the values are True and False; want whole numbers, .*astype"):
            split(8, [1.0], seed=1, labels=mask)
    for wrong in ([0.5] * 8, ["1"] * 8, [True, *range(7)]):
        with pytest.raises(TypeError, match="^labels: entry 0 is .*, want a whole number"):
            split(8, [1.0], seed=1, labels=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="^samples: entry 0 is .*, want a whole number"):
            split(wrong, [1.0], seed=1)
    with pytest.raises(TypeError, match=r"^samples: the values are True and False"):
        pack("set", "x.tar", samples=[True, False])
    with pytest.raises(TypeError, match=r"^samples: entry 1 is True"):
        pack("set", "x.tar", samples=[3, True])
    with pytest.raises(TypeError, match="^samples=True: want a number of samples"):
        split(True, [1.0], seed=1)
    with pytest.raises(ConfigError, match=f"^labels: entry 1 is {1 << 63}, want a label of 64 bits"):
        split(2, [1.0], seed=1, labels=np.array([0, 1 << 63], np.uint64))


def test_long_lists_travel_in_pieces_and_places_count_from_the_start() -> None:
    count = 2 * PIECE + 5
    for kind in (Indices, Numbers):
        dtype = np.uint64 if kind is Indices else np.float64
        for values in (range(count), np.arange(count), list(range(count)), iter(range(count))):
            pieces = list(kind("list", values))
            assert [len(piece) for piece in pieces] == [8 * PIECE, 8 * PIECE, 40]
            assert np.array_equal(np.frombuffer(b"".join(pieces), dtype), np.arange(count))
    with pytest.raises(ConfigError, match=f"entry {count} is -1"):
        list(Indices("list", [*range(count), -1]))
    with pytest.raises(TypeError, match=f"entry {count} is True"):
        list(Indices("list", [*range(count), True, 3]))
    assert repr(Indices("list", np.arange(count))) == f"<ndarray of {count}>"


def test_a_subset_of_a_million_is_the_list_of_its_numbers() -> None:
    class Many(Images):
        def __getitem__(self, index: int) -> object:
            return Images(1 << 30).__getitem__(index)

    source, chosen = Many(1 << 20), np.random.default_rng(3).permutation(1 << 20)
    loader = Loader(source, subset=chosen, **OPTIONS)
    assert next(loader.epoch_from(0, 100_000)).ids == chosen[800_000:800_008].tolist()


def test_the_dataset_keeps_the_subset_that_was_given() -> None:
    for chosen in (np.array([5, 2]), [5, 2]):
        loader = Loader(Images(40), subset=chosen, **OPTIONS)
        chosen[0] = 9
        assert [sample["id"] for sample in loader.dataset] == next(iter(loader)).ids == [5, 2]
