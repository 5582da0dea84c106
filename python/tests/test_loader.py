"""Tests the Python bindings of loader features without a test file of their own: starting
mid-epoch, replays, custom samplers, splits, statistics for a period, reports, spans, and
packing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warpfeed
from conftest import Images, contents, needs
from warpfeed import Augment, Concat, ConfigError, Loader, WarpfeedError

OPTIONS = {"batch_size": 16, "augment": Augment.train(32), "output": "numpy"}


def rest(batches) -> list[tuple[int, int, bytes]]:  # type: ignore[no-untyped-def]
    return [(batch.epoch, batch.batch_index, np.asarray(batch.images).tobytes()) for batch in batches]


def test_epoch_from_delivers_the_rest_of_the_epoch(mini: str) -> None:
    loader = Loader(mini, shuffle=True, seed=3, **OPTIONS)
    unbroken = [rest(loader) for _ in range(3)]
    for first in [0, 1, 3, 4, 9]:
        assert rest(loader.epoch_from(1, first)) == unbroken[1][first:]
        assert loader.epoch == 2
    assert rest(loader) == unbroken[2]
    state = loader.state_dict()
    next(loader.epoch_from(1, 2))
    assert (
        loader.state_dict() != state
        and loader.state_dict() == Loader(mini, shuffle=True, seed=3, resume=loader.state_dict(), **OPTIONS).state_dict()
    )


def test_a_run_does_not_resume_with_a_changed_last_batch(mini: str) -> None:
    loader = Loader(mini, drop_last=True, **OPTIONS)
    next(iter(loader))
    state = loader.state_dict()
    assert next(iter(Loader(mini, last_batch="drop", resume=state, **OPTIONS))).batch_index == 1
    kept = Loader(mini, **OPTIONS)
    message = "last_batch differs: the state has 'drop', this loader has 'keep'.*remove \"last_batch\" from the state"
    for resume in (lambda: Loader(mini, resume=state, **OPTIONS), lambda: kept.load_state_dict(state)):
        with pytest.raises(ConfigError, match=message):
            resume()
    del state["last_batch"]
    kept.load_state_dict(state)
    assert next(iter(kept)).batch_index == 1


def test_a_replay_repeats_first_batches_at_the_same_position(mini: str) -> None:
    loader = Loader(mini, shuffle=True, seed=3, **OPTIONS)
    first = rest(loader)
    state, delivered = loader.state_dict(), loader.stats()["batches"]
    again = loader.replay(2)
    assert rest(next(again) for _ in range(5)) == [first[n] for n in (0, 1, 0, 1, 0)]
    assert loader.state_dict() == state and loader.stats()["batches"] == delivered + 2
    del again
    assert [batch.epoch for batch in loader] == [1] * 4
    for n in (0, 99):
        with pytest.raises(WarpfeedError, match=f"replay\\({n}\\)"):
            loader.replay(n)


def test_workers_decode_host_batches(packed: str) -> None:
    expected = contents(Loader(packed, shuffle=True, seed=3, **OPTIONS))
    for decode_on in ["cpu", "auto"]:
        loader = Loader(packed, shuffle=True, seed=3, decode_on=decode_on, **OPTIONS)
        assert contents(loader) == expected and loader.stats()["images_sent_to_device"] == 0
    with pytest.raises(ValueError, match="decode_on='cuda': expected one of 'cpu', 'gpu', 'auto'"):
        Loader(packed, decode_on="cuda", **OPTIONS)
    for device in [{}, {"device": "cpu"}]:
        with pytest.raises(ConfigError, match="decode_on='gpu' has no effect on host batches; pass device='cuda'"):
            Loader(packed, decode_on="gpu", **device, **OPTIONS)
    with pytest.raises(WarpfeedError, match=r"decode_share=2: expected a fraction of the device's time, from 0 to 1"):
        Loader(packed, decode_share=2, **OPTIONS)


def test_a_sampler_function_selects_every_sample(mini: str) -> None:
    called: list[int] = []

    def there_and_back(epoch: int):  # type: ignore[no-untyped-def]
        called.append(epoch)
        order = np.arange(20 + epoch)
        return order if epoch % 2 == 0 else order[::-1]

    loader = Loader(mini, sampler=there_and_back, epochs=9, **OPTIONS)
    assert len(loader) == 2
    ids = [sum((batch.ids for batch in loader), []) for _ in range(3)]
    assert ids == [list(range(20)), list(reversed(range(21))), list(range(22))]
    assert called == list(range(len(called))) and len(called) > 3, "expected one call per epoch, in advance"
    it = loader.epoch_from(1, 0)
    next(it)
    resumed = Loader(mini, sampler=there_and_back, resume=loader.state_dict(), **OPTIONS)
    left = rest(it)
    assert len(left) == 1 and rest(resumed) == left
    images, _ = next(iter(Loader(mini, sampler=lambda epoch: [5, 5, 5], **OPTIONS)))
    assert len({image.tobytes() for image in images}) == 3
    with pytest.raises(WarpfeedError, match="returned sample 64 in batch 0 of epoch 0; the source has only 64 samples"):
        list(Loader(mini, sampler=lambda epoch: [3, 64], **OPTIONS))
    with pytest.raises(WarpfeedError, match="sampler and shuffle: each decides the order"):
        Loader(mini, sampler=there_and_back, shuffle=True, seed=3, **OPTIONS)


@pytest.mark.parametrize("epochs", [None, 0])
def test_a_sampler_sees_the_state_at_the_start_of_its_epoch(mini: str, epochs: int | None) -> None:
    shift, delivered, called = 0, [], []

    def order(epoch: int) -> list[int]:
        called.append((epoch, len(delivered)))
        return [(shift + i) % 64 for i in range(40)]

    limit = {} if epochs is None else {"epochs": epochs}
    loader = Loader(mini, sampler=order, **limit, **OPTIONS)
    size = loader.batch_size
    each = -(-40 // size)
    for epoch in range(4):
        for number, batch in enumerate(loader):
            assert (batch.epoch, batch.batch_index) == (epoch, number)
            assert batch.ids == [(shift + i) % 64 for i in range(40)][number * size :][:size]
            delivered.append(batch.batch_index)
            # Give the loader time to prepare the next epoch.
            time.sleep(0.02)
        assert len(delivered) == (epoch + 1) * each
        # `len()` and `state_dict()` each call the sampler for the next epoch, before `shift`
        # changes below.
        assert len(loader) == each and loader.state_dict()["epoch"] == epoch + 1
        shift += 7
    assert all(done >= epoch * each for epoch, done in called), "the sampler was called too early"
    assert next(iter(loader.epoch_from(0, 0))).ids[0] == shift
    shift += 1
    assert next(iter(loader.epoch_from(0, 0))).ids[0] == shift


class Stateful:
    """A stateful sampler for `count` samples. Records the epochs for which it is called."""

    def __init__(self, count: int) -> None:
        self.count, self.shift, self.called = count, 0, list[int]()

    def __call__(self, epoch: int) -> list[int]:
        self.called.append(epoch)
        return self.of(self.shift)

    def of(self, shift: int) -> list[int]:
        return [(shift + i) % 64 for i in range(self.count)]


def test_a_stateful_sampler_is_fixed_within_an_epoch(mini: str) -> None:
    order = Stateful(300_000)
    loader = Loader(mini, sampler=order, prefetch=1, num_workers=1, **OPTIONS)
    it = iter(loader)
    ids = next(it).ids
    order.shift = 7
    # Other epochs overflow the cache of sample orders, which holds at most 2**20 samples.
    for epoch in range(5, 10):
        loader.set_epoch(epoch)
        assert len(loader) == -(-300_000 // loader.batch_size)
    called = len(order.called)
    while len(ids) < 200:
        ids += next(it).ids
    assert ids == order.of(0)[: len(ids)] and loader.state_dict()["epoch"] == 0
    assert len(order.called) == called


def test_an_epoch_that_is_resumed_keeps_its_order(mini: str) -> None:
    order = Stateful(60)
    loader = Loader(mini, sampler=order, **OPTIONS)
    for epoch in range(4):
        order.shift = 5 * epoch
        it = iter(loader)
        ids = next(it).ids
        order.shift += 1
    state = loader.state_dict()
    left = order.of(15)[len(ids) :]
    loader.load_state_dict(state)
    assert sum((batch.ids for batch in loader), []) == left
    # The next epoch must use the state at its own beginning.
    assert next(iter(loader)).ids == order.of(16)[: len(ids)]
    # In a new program that has restored the sampler's state.
    order.shift = 15
    resumed = Loader(mini, sampler=order, resume=state, **OPTIONS)
    order.shift = 30
    assert sum((batch.ids for batch in resumed), []) == left
    order.shift = 16
    with pytest.raises(ConfigError, match="the order of epoch 3 differs .* depends on state: before you resume, restore"):
        Loader(mini, sampler=order, resume=state, **OPTIONS)
    # The sampler's state is restored too late, after the sampler has been called.
    resumed = Loader(mini, sampler=order, **OPTIONS)
    resumed.set_epoch(3)
    assert len(resumed) == 4
    with pytest.raises(ConfigError, match="the order of epoch 3 differs"):
        resumed.load_state_dict(state)
    order.shift = 15
    resumed.load_state_dict(state)
    assert sum((batch.ids for batch in resumed), []) == left
    # A checkpoint between epochs records no order, so the sampler may return a different one after
    # resuming.
    order.shift, order.called = 0, []
    loader.set_epoch(0)
    assert list(loader)
    state = loader.state_dict()
    assert 1 not in order.called and (state["epoch"], state["batch"]) == (1, 0)
    order.shift = 3
    resumed = Loader(mini, sampler=order, resume=state, **OPTIONS)
    order.shift = 4
    assert next(iter(resumed)).ids == order.of(4)[: len(ids)]
    with pytest.raises(WarpfeedError, match="the dataset|source samples"):
        Loader(Concat([mini, mini]), sampler=order, resume=state, **OPTIONS)


def test_len_of_iterator_is_for_its_epoch(mini: str) -> None:
    called: list[int] = []

    def order(epoch: int) -> range:
        called.append(epoch)
        return range(64 - 16 * epoch)

    loader = Loader(mini, sampler=order, **{**OPTIONS, "batch_size": 16})
    it = iter(loader)
    assert len(it) == 4
    next(it)
    assert len(it) == 4 and 1 not in called
    state = loader.state_dict()
    assert len(list(it)) == 3 and len(it) == 4
    assert len(loader.epoch_from(2, 1)) == 1 == len(list(loader.epoch_from(2, 1)))
    loader.load_state_dict(state)
    resumed = iter(loader)
    assert len(resumed) == 3 == len(list(resumed)) and len(resumed) == 3
    loader = Loader(mini, resume=state, sampler=order, **{**OPTIONS, "batch_size": 16})
    loader.set_epoch(1)
    assert len(iter(loader)) == 3


def test_a_replay_does_not_end_an_iterator_that_began_after_it(mini: str) -> None:
    order, begun = Stateful(300_000), list[Any]()
    ask, hook = order.__call__, list[bool]()

    def hooked(epoch: int) -> list[int]:
        if hook and epoch == 0:
            hook.clear()
            begun.append(loader.epoch_from(2, 0))
            next(begun[0])
        return ask(epoch)

    loader = Loader(mini, sampler=hooked, **OPTIONS)
    loader.set_epoch(1)
    next(iter(loader))
    for epoch in range(5, 10):
        loader.set_epoch(epoch)
        len(loader)
    hook.append(True)
    with pytest.raises(WarpfeedError, match="a newer iterator"):
        loader.replay(1)
    assert begun and next(begun[0]).batch_index == 1


def test_a_prefetched_sampler_raises_its_exception_once(mini: str) -> None:
    program = f"""
import warpfeed

def order(epoch):
    return [0, 1] if epoch == 0 else [][epoch]

loader = warpfeed.Loader({mini!r}, sampler=order, epochs=3, augment=warpfeed.Augment.train(32), output="numpy")
assert len(list(loader)) == 1
try:
    next(iter(loader))
except warpfeed.WarpfeedError as e:
    assert isinstance(e.__cause__, IndexError), e.__cause__
    print("raised")
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (process.stdout, process.stderr) == ("raised\n", "")


def test_each_of_many_short_epochs_has_its_own_order(mini: str) -> None:
    loader = Loader(mini, sampler=lambda epoch: [epoch % 64], epochs=3000, **OPTIONS)
    for epoch in range(3000):
        assert [batch.ids for batch in loader] == [[epoch % 64]]


def test_an_exception_in_a_sampler_is_raised_by_the_call(mini: str) -> None:
    def order(epoch: int) -> list[int]:
        if epoch == 1:
            raise KeyError("no such epoch")
        return [0, 1]

    loader = Loader(mini, sampler=order, **OPTIONS)
    list(loader)
    with pytest.raises(WarpfeedError, match="order at epoch 1: KeyError: 'no such epoch'") as raised:
        next(iter(loader))
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(WarpfeedError):
        len(loader)
    loader.set_epoch(2)
    assert len(list(loader)) == 1


def test_a_torch_sampler_can_be_used_as_a_sampler_function(mini: str, torch: Any) -> None:
    from torch.utils.data import WeightedRandomSampler

    def order(epoch: int) -> list[int]:
        return list(WeightedRandomSampler([1.0] * 64, 32, generator=torch.Generator().manual_seed(epoch)))

    loader = Loader(mini, sampler=order, **OPTIONS)
    assert sum((batch.ids for batch in loader), []) == order(0) and sum((batch.ids for batch in loader), []) == order(1)


def test_a_dataset_can_be_split_by_class(mini: str, packed: str) -> None:
    labels = [i // 16 for i in range(64)]
    stratified = warpfeed.split(64, [0.75, 0.25], seed=1, labels=labels)
    for data in (mini, Path(packed), warpfeed.Concat([mini])):
        assert warpfeed.split(data, [0.75, 0.25], seed=1, stratify=True) == stratified
        assert warpfeed.split(data, [0.75, 0.25], seed=1) == warpfeed.split(64, [0.75, 0.25], seed=1)
    with pytest.raises(ValueError, match="stratify=True needs a dataset to read labels from"):
        warpfeed.split(64, [1.0], seed=1, stratify=True)
    with pytest.raises(TypeError, match="^split has no argument 'by_class': use stratify$"):
        warpfeed.split(64, [1.0], seed=1, by_class=True)  # type: ignore[arg-type]
    with pytest.raises(WarpfeedError) as raised:
        warpfeed.split("/nowhere", [1.0], seed=1)
    assert raised.value.path == "/nowhere"


def test_the_views_of_an_image_are_in_the_same_batch(mini: str) -> None:
    """A sampler that returns each index twice delivers two views, on one and on two ranks."""

    def twice(epoch: int) -> Any:
        return np.random.default_rng((7, epoch)).permutation(64).repeat(2)

    options = {**OPTIONS, "drop_field": ["label"]}
    for world in (1, 2):
        originals: list[int] = []
        for rank in range(world):
            for batch in Loader(mini, sampler=twice, rank=rank, world_size=world, drop_last=True, **options):
                assert batch.ids[0::2] == batch.ids[1::2]
                first, second = batch["image"][0::2], batch["image"][1::2]
                assert not np.array_equal(first, second) and first.shape == (8, 32, 32, 3)
                originals += batch.ids[0::2]
        assert sorted(originals) == list(range(64))


def test_a_python_dataset_is_split_like_its_indices() -> None:
    own = Images(40, "pair")
    parts = warpfeed.split(own, [0.75, 0.25], seed=3)
    assert parts == warpfeed.split(40, [0.75, 0.25], seed=3)
    stratified = warpfeed.split(own, [0.75, 0.25], seed=3, stratify=True)
    assert stratified == warpfeed.split(40, [0.75, 0.25], seed=3, labels=[i % 2 for i in range(40)])
    for indices in (np.arange(40), range(40), list(range(40))):
        assert warpfeed.split(indices, [0.75, 0.25], seed=3) == parts
    with pytest.raises(ConfigError, match="stratify"):
        warpfeed.split(range(40), [0.75, 0.25], seed=3, stratify=True)


def test_statistics_of_a_period_have_a_verdict_and_a_report(packed: str, tmp_path: Path) -> None:
    loader = Loader(packed, trace=(tmp_path / "trace.json", (0, 0, 7, 1)), **OPTIONS)
    list(loader)
    before = loader.stats()
    for _ in loader:
        with warpfeed.span("of the step"):
            time.sleep(0.002)
    part = loader.stats().since(before)
    assert part["batches"] == 4 and part["samples"] == 64 and part["seconds"] < loader.stats()["seconds"]
    assert "samples/s" in str(part) and str(part.verdict()) and set(part.verdict()) == set(loader.verdict())
    assert loader.device_stats() is None
    loader.close()
    spans = [event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert spans.count("of the step") >= 3
    part.report(tmp_path / "page.html", title="<the run>", trace=tmp_path / "trace.json")
    page = (tmp_path / "page.html").read_text()
    assert page.lstrip().startswith("<!") and "\\u003cthe run>" in page and "of the step" in page
    with pytest.raises(WarpfeedError) as raised:
        part.report(tmp_path / "no" / "page.html")
    assert raised.value.kind == "io"


def test_a_packed_python_source_has_the_same_batches(mini: str, tmp_path: Path) -> None:
    source, reported = Images(40), []
    report = warpfeed.pack(source, tmp_path / "p.lmdb", progress=lambda done, total: reported.append((done, total)))
    assert (
        report["samples"] == 40
        and reported[-1] == (40, 40)
        and [str(p) for p in report["paths"]] == [str(tmp_path / "p.lmdb")]
    )
    options = {**OPTIONS, "augment": Augment.resize(8, 8)}
    loader = Loader(tmp_path / "p.lmdb", **options)
    assert contents(loader) == contents(Loader(source, **options)) and loader.classes == ["even", "odd"]
    with pytest.raises(WarpfeedError, match="already exists"):
        warpfeed.pack(source, tmp_path / "p.lmdb")
    shards = warpfeed.pack(mini, tmp_path / "m.tar", force=True, shard_size=100_000)["paths"]
    assert len(shards) > 1
    joined = Loader(
        tmp_path / f"m-{{000000..{len(shards) - 1:06}}}.tar", **{**OPTIONS, "augment": Augment.resize(8, 8)}
    )
    assert contents(joined) == contents(Loader(mini, **{**OPTIONS, "augment": Augment.resize(8, 8)}))
    small = warpfeed.pack(mini, tmp_path / "raw.lmdb", raw=(32, 40))
    assert small["raw"] == 64
    listed = warpfeed.pack(mini, tmp_path / "listed.lmdb", raw=[32, 40])
    assert listed["bytes_out"] == small["bytes_out"]
    for wrong in ([32], (32, 40, 3), "32"):
        with pytest.raises(TypeError, match="raw=.*: expected "):
            warpfeed.pack(mini, tmp_path / "x.lmdb", raw=wrong)
    for invalid in [{"recode": "best"}, {"raw": 32, "quality": 90}, {"recode": "keep_bytes", "quality": 90}]:
        with pytest.raises(ValueError):
            warpfeed.pack(mini, tmp_path / "x.lmdb", **invalid)
    assert not (tmp_path / "x.lmdb").exists()


def test_packing_ends_its_threads_before_it_returns(tmp_path: Path) -> None:
    """Thread-local objects are released, too. Later, they would be released while the interpreter
    shuts down."""
    local, counts = threading.local(), {"made": 0, "released": 0}

    class Connection:
        def __init__(self) -> None:
            counts["made"] += 1

        def __del__(self) -> None:
            time.sleep(0.02)
            counts["released"] += 1

    class Connected(Images):
        def __getitem__(self, index: int) -> object:
            if not hasattr(local, "connection"):
                local.connection = Connection()
            return super().__getitem__(index)

    warpfeed.pack(Connected(40), tmp_path / "p.lmdb", num_workers=8)
    assert counts["made"] == counts["released"] > 0


class Slow(Images):
    def __getitem__(self, index: int) -> object:
        time.sleep(0.01)
        return super().__getitem__(index)


@needs("signals", sys.platform != "win32")
def test_packing_stops_on_ctrl_c_and_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def stop(done: int, total: int) -> None:
        raise LookupError("enough")

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for progress, error in [(interrupt, KeyboardInterrupt), (stop, LookupError)]:
            source = Slow(100_000)
            with pytest.raises(error):
                warpfeed.pack(source, tmp_path / "p.lmdb", num_workers=2, progress=progress)
            assert not (tmp_path / "p.lmdb").exists()
    finally:
        signal.signal(signal.SIGINT, previous)


def test_a_cache_of_decoded_images_does_not_change_batches(mini: str) -> None:
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3, "augment": Augment.train(32), "output": "numpy"}

    def epochs(loader: Loader) -> list[Any]:
        return [images.copy() for _ in range(3) for images, _ in loader]

    with Loader(mini, **options) as plain, Loader(mini, cache_decoded=1 << 26, **options) as cached:
        assert all((a == b).all() for a, b in zip(epochs(plain), epochs(cached), strict=True))
        assert plain.stats()["decoded_cache"] is None
        stats = cached.stats()
        cache = stats["decoded_cache"]
        assert cache["images"] == 64 and cache["hits"] >= 128 and cache["bytes"] <= cache["capacity_bytes"] == 1 << 26
        assert cached.memory_plan()["decoded_cache_bytes"] == 1 << 26
        assert warpfeed.metrics.as_dict(stats)["warpfeed_decoded_cache_hits_total"] == cache["hits"]
    with (
        Loader(mini, **options) as plain,
        Loader(mini, cache_decoded=1 << 26, cache_format="coefficients", **options) as compact,
    ):
        assert all((a == b).all() for a, b in zip(epochs(plain), epochs(compact), strict=True))
        coefficients = compact.stats()["decoded_cache"]
        assert coefficients["images"] == 64 and coefficients["hits"] >= 128
        assert coefficients["bytes"] < cache["bytes"]
    with pytest.raises(ValueError, match="cache_format='jpeg': expected one of 'pixels', 'coefficients'"):
        Loader(mini, cache_format="jpeg", **options)
    with pytest.raises(ConfigError, match="cache_format='coefficients' has no effect without cache_decoded"):
        Loader(mini, cache_format="coefficients", **options)
    with pytest.raises(WarpfeedError, match=r"MiB for decoded images.*cache_decoded=\d+ fits"):
        Loader(mini, cache_decoded=1 << 40, memory_limit=1 << 30, **options)
