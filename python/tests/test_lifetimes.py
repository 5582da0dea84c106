"""Tests that the bytes of a live tensor do not change, that dropping it releases its slot, and that
a program that keeps every batch receives copies."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from conftest import batches_of, ran
from warpfeed import Augment, Loader, WarpfeedError

OPTIONS = {"batch_size": 16, "shuffle": True, "seed": 1, "augment": Augment.train(96), "prefetch": 2, "output": "numpy"}


def test_a_kept_tensor_keeps_its_bytes_while_1000_batches_go_by(packed: str, torch: Any) -> None:
    loader = Loader(packed, **{**OPTIONS, "output": "torch", "copy": False, "augment": Augment.train(32)})
    images, labels = next(iter(loader))
    # A view of a view must also keep the slot in use.
    view = images[3:5, 1]
    expected, corner, expected_labels = images.clone(), view.clone(), labels.clone()
    address = images.data_ptr()
    others = set()
    for number, (other, _) in enumerate(batches_of(loader, 1000)):
        others.add(other.data_ptr())
        if number == 500:
            assert torch.equal(images, expected)
            del images
    assert address not in others
    assert torch.equal(view, corner) and torch.equal(labels, expected_labels)
    del view, labels
    for other, _ in batches_of(loader, 20):
        others.add(other.data_ptr())
    assert address in others, "the slot was not reused"


def test_batches_are_copied_while_all_slots_are_held(packed: str) -> None:
    loader = Loader(packed, **OPTIONS)
    slots = loader.memory_plan()["slots"]
    batches = list(batches_of(loader, 3 * slots))
    again = Loader(packed, **{**OPTIONS, "copy": True})
    for (images, labels), (expected, expected_labels) in zip(batches, batches_of(again, 3 * slots), strict=True):
        assert np.array_equal(images, expected) and np.array_equal(labels, expected_labels)
    assert len({images.ctypes.data for images, _ in batches}) == 3 * slots
    # Batches must be copied only if no slot is free.
    del batches, images, labels
    gc.collect()
    shared = {images.ctypes.data for images, _ in batches_of(loader, 4 * slots)}
    assert len(shared) <= slots


def test_copy_false_times_out_while_all_slots_are_held(packed: str) -> None:
    loader = Loader(packed, **{**OPTIONS, "batch_size": 4}, copy=False, held_batches_timeout=0.3)
    it = iter(loader)
    retained = []
    with pytest.raises(WarpfeedError, match="the program has held batches in all 4 slots") as raised:
        for batch in it:
            retained.append(batch)
    assert raised.value.kind == "timeout" and len(retained) == 4
    del retained[0], batch
    assert next(it).batch_index == 4


def test_held_labels_keep_no_batch_alive(packed: str) -> None:
    loader = Loader(packed, **OPTIONS, held_batches_timeout=0.5)
    labels, addresses = [], set()
    for images, label in batches_of(loader, 40):
        labels.append(label)
        addresses.add(images.ctypes.data)
    assert len(addresses) <= 4 and len({label.ctypes.data for label in labels}) == 40


def test_batches_outlive_the_loader(packed: str) -> None:
    loader = Loader(packed, **OPTIONS)
    images, _ = next(iter(loader))
    expected = images.copy()
    loader.close()
    with pytest.raises(WarpfeedError, match="closed"):
        next(iter(loader))
    del loader
    gc.collect()
    assert np.array_equal(images, expected)


def test_an_unused_capsule_releases_its_batch(packed: str) -> None:
    loader = Loader(packed, **{**OPTIONS, "output": "dlpack", "copy": False}, held_batches_timeout=0.5)
    for batch in batches_of(loader, 20):
        capsules = [batch.images.__dlpack__(), batch.labels.__dlpack__(max_version=(1, 0))]
        del capsules, batch


def test_tensors_may_be_dropped_on_any_thread(packed: str) -> None:
    loader = Loader(packed, **OPTIONS, copy=False)
    sums = []

    def work(batch) -> None:  # type: ignore[no-untyped-def]
        sums.append(int(batch.images.sum()))

    threads = []
    for batch in batches_of(loader, 60):
        threads = [thread for thread in threads if thread.is_alive()]
        while len(threads) > 1:
            threads.pop(0).join()
        thread = threading.Thread(target=work, args=(batch,))
        del batch
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    loader.set_epoch(0)
    assert sorted(sums) == sorted(int(images.sum()) for images, _ in batches_of(loader, 60))


def test_two_threads_on_one_iterator_get_each_batch_once(packed: str) -> None:
    loader = Loader(packed, **{**OPTIONS, "batch_size": 2})
    it, seen, lock = iter(loader), [], threading.Lock()

    def work() -> None:
        for batch in it:
            with lock:
                seen.extend(batch.ids)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(64))


def test_a_newer_iterator_takes_over(packed: str) -> None:
    loader = Loader(packed, **OPTIONS)
    old = iter(loader)
    next(old)
    new = iter(loader)
    first = next(new)
    with pytest.raises(WarpfeedError, match="a newer iterator"):
        next(old)
    assert first.batch_index == 0 and len(list(new)) == 3 and list(new) == []


def test_memory_does_not_grow(packed: str) -> None:
    grown = ran(
        """
        import resource, sys, warpfeed
        augment = warpfeed.Augment.train(96)
        loader = warpfeed.Loader(sys.argv[1], batch_size=16, augment=augment, output="numpy", prefetch=2)
        def run(epochs):
            for _ in range(epochs):
                for images, labels in loader:
                    pass
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before = run(40)
        print(run(400) - before)
        """,
        packed,
    )
    assert int(grown) < 4096, f"{grown} KiB in 1,600 batches"
