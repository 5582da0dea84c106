"""Tests that options accept lists of numbers of any type but no masks, that errors state the
position of an invalid entry, and that long lists are read in chunks."""

from __future__ import annotations

import array
import re
from typing import Any

import numpy as np
import pytest
from conftest import Images
from warpfeed import Augment, ConfigError, Loader, WarpfeedError, pack, split
from warpfeed._number_lists import CHUNK_LEN, Floats, Indices

OPTIONS: dict[str, Any] = {"batch_size": 8, "augment": Augment.resize(8), "output": "numpy", "num_workers": 1}


def ids(**options: Any) -> list[int]:
    return [id for batch in Loader(Images(40), **OPTIONS, **options) for id in batch.ids]


def test_every_list_type_gives_the_same_subset_and_weights(torch: Any) -> None:
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
        ([0, 1, -2], ConfigError, "subset: entry 2 is -2; expected an index of 0 or more"),
        (np.array([0, -1]), ConfigError, "subset: entry 1 is -1"),
        ([0, 1.5], TypeError, "subset: entry 1 is 1.5; expected a whole number"),
        ([0, 1.0], TypeError, "subset: entry 1 is 1.0; expected a whole number"),
        ([0, float("nan")], TypeError, "subset: entry 1 is nan; expected a whole number"),
        ([True, 2], TypeError, "subset: entry 0 is True; expected a whole number"),
        ((2, np.True_), TypeError, "subset: entry 1 is .*True_?; expected a whole number"),
        (np.array([2, True], object), TypeError, "subset: entry 1 is True; expected a whole number"),
        ([[1], [2, 3]], TypeError, "subset: the entries are lists of different lengths"),
        (np.array([1.0]), TypeError, "subset: entry 0 is 1.0"),
        (["a"], TypeError, "subset: entry 0 is 'a'"),
        (np.arange(40) > 7, TypeError, "True and False; the indices of a mask are numpy.flatnonzero"),
        ([True, False], TypeError, r"True and False; .* mask\.nonzero\(\)"),
        (np.zeros((2, 2), int), TypeError, r"subset: the shape is \(2, 2\)"),
        ([1 << 64], ConfigError, f"subset: entry 0 is {1 << 64}"),
        ([40], ConfigError, "subset: entry 0 is sample 40, but the source has 40 samples"),
        ([], ConfigError, "subset: the list of indices is empty"),
    ],
)
def test_an_invalid_index_fails_with_its_position(subset: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ids(subset=subset)


@pytest.mark.parametrize(
    ("order", "error", "message"),
    [
        (np.arange(40) > 7, TypeError, r"sampler\(0\): the values are True and False; .*flatnonzero.* mask\.nonzero\(\)"),
        ([True, False], TypeError, r"sampler\(0\): the values are True and False"),
        ([0, 1.5], TypeError, r"sampler\(0\): entry 1 is 1.5; expected a whole number"),
        ([True, 2], TypeError, r"sampler\(0\): entry 0 is True; expected a whole number"),
        ([2, np.True_], TypeError, r"sampler\(0\): entry 1 is .*True_?; expected a whole number"),
        ([5, 1 << 63, 1], ConfigError, f"the sampler returned sample {1 << 63} in batch 0 of epoch 0; the source has only 40 samples"),
        ([40], ConfigError, "the sampler returned sample 40 in batch 0 of epoch 0; the source has only 40 samples"),
        (np.array([1.0]), TypeError, r"sampler\(0\): entry 0 is 1.0"),
        ("0123", TypeError, r"sampler\(0\): '0123'; expected a list of whole numbers"),
        (["1"], TypeError, r"sampler\(0\): entry 0 is '1'"),
        (None, TypeError, r"sampler\(0\): None; expected a list of whole numbers"),
        (np.array(3), TypeError, r"sampler\(0\): array\(3\); expected a list of whole numbers"),
        (np.zeros((2, 1), int), TypeError, r"sampler\(0\): the shape is \(2, 1\)"),
        ([0, -1], ConfigError, r"sampler\(0\): entry 1 is -1; expected an index of 0 or more"),
    ],
)
def test_an_invalid_result_of_a_sampler_fails_with_its_value(order: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(WarpfeedError, match=message) as raised:
        ids(sampler=lambda epoch: order)
    if not message.startswith("the sampler returned"):
        assert raised.value.kind == "transform" and isinstance(raised.value.__cause__, error)


def test_tensors_may_be_indices_or_labels_but_not_masks(torch: Any) -> None:
    mask = torch.arange(40) % 9 == 0
    chosen = [0, 9, 18, 27, 36]
    for order in (mask.nonzero().flatten(), np.flatnonzero(mask), [torch.tensor(i) for i in chosen]):
        assert ids(sampler=lambda epoch, order=order: order) == chosen
    assert ids(sampler=lambda epoch: iter(chosen)) == chosen
    with pytest.raises(WarpfeedError, match=r"sampler\(0\): the values are True and False"):
        ids(sampler=lambda epoch: mask)
    with pytest.raises(WarpfeedError, match=r"sampler\(0\): entry 1 is tensor\(True\); expected a whole number"):
        ids(sampler=lambda epoch: [torch.tensor(3), mask[0]])


def test_a_repeated_index_is_a_new_variant_of_its_sample() -> None:
    image = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)

    class One(Images):
        def __getitem__(self, index: int) -> object:
            return image, 0

    options = {**OPTIONS, "augment": Augment.train(8)}
    for again in ({"subset": [0, 0]}, {"sampler": lambda epoch: [0, 0]}):
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
        ("id", loader.dataset_index),
    ]
    for name, call in calls:
        for invalid in (1.5, 1.0, True, np.True_, "1", None):
            with pytest.raises(TypeError, match=f"^{name}={re.escape(repr(invalid))}: expected a whole number"):
                call(invalid)
        with pytest.raises(ConfigError, match=f"^{name}=-1: expected a whole number from 0"):
            call(-1)
    loader.set_epoch(np.int64(3))
    assert loader.epoch == 3


def test_split_accepts_any_list_type_but_no_masks(torch: Any) -> None:
    labels = [-1, 0, 1, 1, 0, -1, 0, 1]
    expected = split(8, [0.5, 0.5], seed=1, labels=labels)
    for kind in (np.array, torch.tensor, tuple, iter):
        assert split(kind(range(8)), [0.5, 0.5], seed=1, labels=kind(labels)) == expected, kind
    for mask in (np.array(labels) > 0, torch.tensor(labels) > 0, [True] * 8):
        with pytest.raises(TypeError, match=r"^samples: the values are True and False; the indices of a mask"):
            split(mask, [1.0], seed=1)
        with pytest.raises(TypeError, match=r"^labels: the values are True and False; expected whole numbers, .*astype"):
            split(8, [1.0], seed=1, labels=mask)
    for invalid in ([0.5] * 8, ["1"] * 8, [True, *range(7)]):
        with pytest.raises(TypeError, match="^labels: entry 0 is .*; expected a whole number"):
            split(8, [1.0], seed=1, labels=invalid)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="^samples: entry 0 is .*; expected a whole number"):
            split(invalid, [1.0], seed=1)
    with pytest.raises(TypeError, match=r"^samples: the values are True and False"):
        pack("set", "x.tar", samples=[True, False])
    with pytest.raises(TypeError, match=r"^samples: entry 1 is True"):
        pack("set", "x.tar", samples=[3, True])
    with pytest.raises(TypeError, match="^samples=True: expected a number of samples"):
        split(True, [1.0], seed=1)
    with pytest.raises(ConfigError, match=f"^labels: entry 1 is {1 << 63}; expected a label that fits in 64 bits"):
        split(2, [1.0], seed=1, labels=np.array([0, 1 << 63], np.uint64))


def test_long_lists_are_passed_in_chunks() -> None:
    count = 2 * CHUNK_LEN + 5
    for kind in (Indices, Floats):
        dtype = np.uint64 if kind is Indices else np.float64
        for values in (range(count), np.arange(count), list(range(count)), iter(range(count))):
            pieces = list(kind("list", values))
            assert [len(piece) for piece in pieces] == [8 * CHUNK_LEN, 8 * CHUNK_LEN, 40]
            assert np.array_equal(np.frombuffer(b"".join(pieces), dtype), np.arange(count))
    with pytest.raises(ConfigError, match=f"entry {count} is -1"):
        list(Indices("list", [*range(count), -1]))
    with pytest.raises(TypeError, match=f"entry {count} is True"):
        list(Indices("list", [*range(count), True, 3]))
    assert repr(Indices("list", np.arange(count))) == f"<ndarray of {count}>"


def test_a_subset_of_a_million_indices_is_exact() -> None:
    source, chosen = Images(1 << 20), np.random.default_rng(3).permutation(1 << 20)
    loader = Loader(source, subset=chosen, **OPTIONS)
    assert next(loader.epoch_from(0, 100_000)).ids == chosen[800_000:800_008].tolist()


def test_the_dataset_keeps_the_subset_that_was_given() -> None:
    for chosen in (np.array([5, 2]), [5, 2]):
        loader = Loader(Images(40), subset=chosen, **OPTIONS)
        chosen[0] = 9
        assert [sample["id"] for sample in loader.dataset] == next(iter(loader)).ids == [5, 2]
