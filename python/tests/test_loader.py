"""Promise: Python has the Rust loader's other features, too: epochs from the middle, replays,
user-defined orders, splits, statistics of a period, reports, spans, packing."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warpfeed
from conftest import Pictures, contents
from warpfeed import Augment, Loader, WarpfeedError

OPTIONS = {"batch_size": 16, "augment": Augment.train(32), "output": "numpy"}


def rest(batches) -> list[tuple[int, int, bytes]]:  # type: ignore[no-untyped-def]
    return [(batch.epoch, batch.number, np.asarray(batch.images).tobytes()) for batch in batches]


def test_an_epoch_from_the_middle_is_the_end_of_that_epoch(mini: str) -> None:
    loader = Loader(mini, shuffle=3, **OPTIONS)
    whole = [rest(loader) for _ in range(3)]
    for first in [0, 1, 3, 4, 9]:
        assert rest(loader.epoch_from(1, first)) == whole[1][first:]
        assert loader.epoch == 2
    assert rest(loader) == whole[2]
    state = loader.state_dict()
    next(loader.epoch_from(1, 2))
    assert (
        loader.state_dict() != state
        and loader.state_dict() == Loader(mini, shuffle=3, resume=loader.state_dict(), **OPTIONS).state_dict()
    )


def test_a_replay_repeats_the_first_batches_and_keeps_the_position(mini: str) -> None:
    loader = Loader(mini, shuffle=3, **OPTIONS)
    first = rest(loader)
    state, told = loader.state_dict(), loader.stats()["batches"]
    again = loader.replay(2)
    assert rest(next(again) for _ in range(5)) == [first[n] for n in (0, 1, 0, 1, 0)]
    assert loader.state_dict() == state and loader.stats()["batches"] == told + 2
    del again
    assert [batch.epoch for batch in loader] == [1] * 4
    for n in (0, 99):
        with pytest.raises(WarpfeedError, match=f"replay\\({n}\\)"):
            loader.replay(n)


def test_host_batches_ignore_where_pictures_are_decoded_and_a_wrong_word_is_named(packed: str) -> None:
    expected = contents(Loader(packed, shuffle=3, **OPTIONS))
    for decode_on in ["cpu", "gpu", "auto"]:
        loader = Loader(packed, shuffle=3, decode_on=decode_on, **OPTIONS)
        assert contents(loader) == expected and loader.stats()["decoded_on_device"] == 0
    with pytest.raises(ValueError, match="decode_on='cuda': known are 'cpu', 'gpu' and 'auto'"):
        Loader(packed, decode_on="cuda", **OPTIONS)
    with pytest.raises(WarpfeedError, match=r"decode_share=2: a share of the device's time must be 0 to 1"):
        Loader(packed, decode_share=2, **OPTIONS)


def test_a_user_defined_order_chooses_every_sample(mini: str) -> None:
    asked: list[int] = []

    def there_and_back(epoch: int):  # type: ignore[no-untyped-def]
        asked.append(epoch)
        order = np.arange(20 + epoch)
        return order if epoch % 2 == 0 else order[::-1]

    loader = Loader(mini, order=there_and_back, **OPTIONS)
    assert len(loader) == 2
    ids = [sum((batch.ids for batch in loader), []) for _ in range(3)]
    assert ids == [list(range(20)), list(reversed(range(21))), list(range(22))]
    assert asked == list(range(len(asked))) and len(asked) > 3, "once for each epoch, and ahead of it"
    # A resume in mid-epoch continues. A sample that occurs twice is augmented twice.
    it = loader.epoch_from(1, 0)
    next(it)
    resumed = Loader(mini, order=there_and_back, resume=loader.state_dict(), **OPTIONS)
    left = rest(it)
    assert len(left) == 1 and rest(resumed) == left
    images, _ = next(iter(Loader(mini, order=lambda epoch: [5, 5, 5], **OPTIONS)))
    assert len({image.tobytes() for image in images}) == 3
    with pytest.raises(WarpfeedError, match="64"):
        list(Loader(mini, order=lambda epoch: [3, 64], **OPTIONS))
    with pytest.raises(WarpfeedError, match="decides? the order|order"):
        Loader(mini, order=there_and_back, shuffle=3, **OPTIONS)


def test_an_exception_in_an_order_is_raised_by_the_call(mini: str) -> None:
    def order(epoch: int) -> list[int]:
        if epoch == 1:
            raise KeyError("no such epoch")
        return [0, 1]

    loader = Loader(mini, order=order, **OPTIONS)
    list(loader)
    with pytest.raises(KeyError, match="no such epoch"):
        next(iter(loader))
    with pytest.raises(KeyError):
        len(loader)
    loader.set_epoch(2)
    assert len(list(loader)) == 1


def test_a_torch_sampler_is_an_order(mini: str, torch: Any) -> None:
    from torch.utils.data import WeightedRandomSampler

    def order(epoch: int) -> list[int]:
        return list(WeightedRandomSampler([1.0] * 64, 32, generator=torch.Generator().manual_seed(epoch)))

    loader = Loader(mini, order=order, **OPTIONS)
    assert sum((batch.ids for batch in loader), []) == order(0) and sum((batch.ids for batch in loader), []) == order(1)


def test_a_split_of_a_data_set_is_by_its_classes(mini: str, packed: str) -> None:
    labels = [i // 16 for i in range(64)]
    by_class = warpfeed.split(64, [0.75, 0.25], seed=1, labels=labels)
    for data in (mini, Path(packed), warpfeed.Concat([mini])):
        assert warpfeed.split(data, [0.75, 0.25], seed=1, by_class=True) == by_class
        assert warpfeed.split(data, [0.75, 0.25], seed=1) == warpfeed.split(64, [0.75, 0.25], seed=1)
    with pytest.raises(ValueError, match="by_class reads the labels from a data set"):
        warpfeed.split(64, [1.0], seed=1, by_class=True)
    with pytest.raises(WarpfeedError) as raised:
        warpfeed.split("/nowhere", [1.0], seed=1)
    assert raised.value.path == "/nowhere"


def test_statistics_of_a_part_have_a_verdict_and_a_page(packed: str, tmp_path: Path) -> None:
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


def test_a_python_source_is_packed_and_loads_as_it_was(mini: str, tmp_path: Path) -> None:
    source, told = Pictures(40), []
    report = warpfeed.pack(source, tmp_path / "p.lmdb", progress=lambda done, total: told.append((done, total)))
    assert (
        report["samples"] == 40
        and told[-1] == (40, 40)
        and [str(p) for p in report["paths"]] == [str(tmp_path / "p.lmdb")]
    )
    options = {**OPTIONS, "augment": Augment.resize(8, 8)}
    loader = Loader(tmp_path / "p.lmdb", **options)
    assert contents(loader) == contents(Loader(source, **options)) and loader.classes() == ["even", "odd"]
    with pytest.raises(WarpfeedError, match="exists already"):
        warpfeed.pack(source, tmp_path / "p.lmdb")
    shards = warpfeed.pack(mini, tmp_path / "m.tar", force=True, shard_size=100_000)["paths"]
    assert len(shards) > 1
    joined = Loader(
        tmp_path / f"m-{{000000..{len(shards) - 1:06}}}.tar", **{**OPTIONS, "augment": Augment.resize(8, 8)}
    )
    assert contents(joined) == contents(Loader(mini, **{**OPTIONS, "augment": Augment.resize(8, 8)}))
    small = warpfeed.pack(mini, tmp_path / "raw.lmdb", raw=(40, 32))
    assert small["raw"] == 64
    for wrong in [{"recode": "best"}, {"raw": 32, "quality": 90}, {"recode": "keep_bytes", "quality": 90}]:
        with pytest.raises(ValueError):
            warpfeed.pack(mini, tmp_path / "x.lmdb", **wrong)
    assert not (tmp_path / "x.lmdb").exists()


class Slow(Pictures):
    def __getitem__(self, index: int) -> object:
        time.sleep(0.01)
        return super().__getitem__(index)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_packing_is_stopped_by_ctrl_c_and_by_an_exception_and_leaves_nothing(tmp_path: Path) -> None:
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
