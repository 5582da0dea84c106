"""Tests that a pickled loader, or an instance of a subclass, starts at the same position."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warpfeed import Augment, Loader

OPTIONS: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3, "augment": Augment.train(32), "output": "numpy"}


class Labeled(Loader):
    """A subclass with its own arguments, which sets attributes before and after
    `super().__init__()`."""

    def __init__(self, root: str, name: str, **options: Any) -> None:
        self.root = root
        super().__init__(root, **OPTIONS, **options)
        self.name = name
        self.parts = [name]

    def __iter__(self):  # type: ignore[no-untyped-def]
        for images, labels in super().__iter__():
            yield images, labels, self.name


def rest(loader: Loader) -> list[bytes]:
    return [np.asarray(batch[0]).tobytes() for batch in loader]


def test_a_subclass_with_its_own_arguments_is_pickled(mini: str) -> None:
    loader = Labeled(mini, "mine", drop_last=True)
    expected = rest(Loader(mini, drop_last=True, **OPTIONS))
    for again in (pickle.loads(pickle.dumps(loader)), copy.copy(loader)):
        assert type(again) is Labeled and (again.root, again.name, again.parts) == (mini, "mine", ["mine"])
        assert again.drop_last and repr(again) == repr(loader) and next(iter(again))[2] == "mine"
        assert rest(pickle.loads(pickle.dumps(loader))) == expected


@pytest.mark.parametrize("kind", [list, np.array, "tensor"])
def test_a_pickled_loader_keeps_its_original_lists(mini: str, kind: Any, request: Any) -> None:
    kind = request.getfixturevalue("torch").tensor if kind == "tensor" else kind
    options: dict[str, Any] = {**OPTIONS, "shuffle": False, "seed": 3}
    for name, values, other in (("subset", [5, 2, 9, 9], 0), ("weights", [1.0, 0.0, 0.0, 2.0] * 16, 3.0)):
        changed = kind(values)
        loader = Loader(mini, **options, **{name: changed})
        for index in range(len(changed)):
            changed[index] = other
        expected = [batch.ids for batch in Loader(mini, **options, **{name: values})]
        assert [batch.ids for batch in pickle.loads(pickle.dumps(loader))] == expected, name
    loader = Loader(mini, **options, subset=iter([5, 2]))
    assert next(iter(pickle.loads(pickle.dumps(loader)))).ids == [5, 2], "the copy lost the indices"


def test_a_pickled_loader_keeps_its_resume_and_its_position(mini: str) -> None:
    complete = Loader(mini, **OPTIONS)
    epochs = [rest(complete) for _ in range(3)]
    first = Loader(mini, **OPTIONS)
    it = iter(first)
    next(it)
    state = first.state_dict()
    # If a loader is pickled mid-epoch, both loaders have the same state, and both start the next
    # epoch when iterated.
    there = pickle.loads(pickle.dumps(first))
    assert there.state_dict() == state and rest(there) == epochs[1]
    there = pickle.loads(pickle.dumps(first))
    there.set_epoch(0)
    assert rest(there) == epochs[0][1:], "the epoch must continue where it stopped"
    resumed = pickle.loads(pickle.dumps(Loader(mini, resume=state, **OPTIONS)))
    assert rest(resumed) == epochs[0][1:] and rest(resumed) == epochs[1]
    resumed = pickle.loads(pickle.dumps(complete))
    assert resumed.epoch == 3 and resumed.state_dict() == complete.state_dict()


def test_a_traced_loader_and_an_iterator_cannot_be_pickled(mini: str, tmp_path: Path) -> None:
    traced = Loader(mini, trace=tmp_path / "t.json", **OPTIONS)
    with pytest.raises(TypeError, match="^trace=.*cannot be pickled, because two loaders would write to the same file"):
        pickle.dumps(traced)
    with pytest.raises(TypeError, match="an iterator cannot be pickled; pickle the loader"):
        pickle.dumps(iter(Loader(mini, **OPTIONS)))
