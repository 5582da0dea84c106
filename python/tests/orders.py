"""Compares the batches of loaders with random options with naive orders::

    python python/tests/orders.py 100000 [--seed 0] [--jobs 2] [--kind mixture]

Each case, from ``order_cases.py``, is a dataset with random options. Its loader starts at some
batch, stops after a few batches, and resumes on one to three ranks. Every rank must deliver the
samples that ``naive.py`` lists. The script prints the number of cases, the time and any
differences, and exits with 1 if there are some. The number of a case is its seed: ``orders.py 1
--seed 4711`` repeats case 4711.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import multiprocessing
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator

import naive
import warpfeed
from order_cases import EPOCHS, KINDS, Case, Files, Mixed

Ranks = list[list[tuple[int, bool]]]


class Run:
    """A run that starts at some batch, stops, and resumes on one to three ranks."""

    def __init__(self, case: Case) -> None:
        self.case, self.rng, self.batch_count = case, case.rng, 0
        self.epochs = [case.batches(epoch) for epoch in range(EPOCHS)]
        lens = [len(batches) for batches, _ in self.epochs]
        self.all = [(epoch, number) for epoch in range(EPOCHS) for number in range(lens[epoch])]

    def open(self, world: int, **options: Any) -> list[warpfeed.Loader]:
        created = []
        for rank in range(world):
            threads = {"prefetch": self.rng.randint(1, 4), "num_workers": self.rng.choice([1, 1, 1, 2])}
            created.append(self.case.loader(rank=rank, world_size=world, **threads, **options))
        return created

    def compare(self) -> None:
        if not self.epochs[0][0]:
            try:
                self.open(1)
            except warpfeed.ConfigError as e:
                assert "no batch" in str(e) or "smaller than one global batch" in str(e), e
                return
            raise AssertionError("a loader without a batch was opened")
        # When a planned call (such as ``set_weights``) takes effect depends on the batches before
        # it.
        start = 0 if self.case.planned_calls else self.rng.randrange(len(self.all))
        steps = self.rng.randint(14, 20) if self.case.planned_calls else self.rng.randint(2, 9)
        stop = min(len(self.all), start + steps)
        state: Any = None
        while start < stop:
            ranks = self.open(self.rng.randint(1, 3), resume=state)
            until = min(stop, start + self.rng.randint(1, 8))
            self.walk(ranks, start, until, state is None)
            start = until
            states = {json.dumps(rank.state_dict()) for rank in ranks}
            assert len(states) == 1, f"the states of the ranks differ: {states}"
            state = json.loads(states.pop())
            for rank in ranks:
                rank.close()

    def walk(self, ranks: list[warpfeed.Loader], start: int, until: int, jump: bool) -> None:
        """Compares the batches from `start` until `until`."""
        iterators: list[Iterator[Any]] = []
        for place in range(start, until):
            epoch, number = self.all[place]
            if jump and not self.case.planned_calls and place == start:
                iterators = [rank.epoch_from(epoch, number) for rank in ranks]
            elif number == 0 or place == start:
                assert all(next(iterator, None) is None for iterator in iterators), f"more batches before epoch {epoch}"
                for rank in ranks:
                    # Skip epochs without batches.
                    while rank.epoch < epoch:
                        assert not list(rank)
                iterators = [iter(rank) for rank in ranks]
            batches = [next(iterator) for iterator in iterators]
            self.expect(batches, epoch, number)
            if place in self.case.planned_calls:
                self.call(ranks, place)

    def expect(self, batches: list[Any], epoch: int, number: int) -> None:
        case, (known, padding) = self.case, self.epochs[epoch]
        actual = [list(zip(batch.ids, batch.valid, strict=True)) for batch in batches]
        smallest = case.min_samples(len(batches), len(known[number]))
        expected: Ranks = naive.divide_among_ranks(known[number], padding, smallest, len(batches))
        assert actual == expected, f"batch {number} of epoch {epoch}: {actual} instead of {expected}"
        for batch in batches:
            actual = (batch.epoch, batch.batch_index)
            assert actual == (epoch, number), f"batch {batch.batch_index} of epoch {batch.epoch}"
            if len(batch.ids):
                case.check(batch)
        self.batch_count += 1

    def call(self, ranks: list[warpfeed.Loader], place: int) -> None:
        values, after = self.case.planned_calls[place]
        for rank in ranks:
            call = rank.set_mixture if isinstance(self.case, Mixed) else rank.set_weights
            actual, expected = call(values, after_batches=after), self.case.first_affected_batch(place)
            # A change after the end of a run affects no batch.
            is_after_end = not self.epochs[-1][0] and place + 1 + after >= len(self.all)
            assert is_after_end or actual == expected, f"the call after batch {place}: {actual} instead of {expected}"


def compare_case(number: int, files: Files, kind: str | None = None) -> tuple[str, int, str]:
    """Returns the kind, the number of batches, and the difference, or an empty string."""
    kind = kind or random.Random(-1 - number).choice(["plain", "plain", "mixture", "mixture", "buckets", "packing"])
    run = None
    try:
        run = Run(KINDS[kind](number, files))
        run.compare()
    except Exception as e:
        options = "" if run is None else {**run.case.options, "batch": run.case.batch, "last": run.case.last}
        return kind, 0, f"case {number}, {kind}, {options}: {type(e).__name__}: {e}"
    return kind, run.batch_count, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=int)
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--kind", choices=KINDS)
    options = parser.parse_args()
    start, counts, differences = time.monotonic(), collections.Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        compare_one = functools.partial(compare_case, files=Files(Path(folder)), kind=options.kind)
        with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=20) as pool:
            numbers = range(options.seed, options.seed + options.cases)
            for kind, batches, difference in pool.imap_unordered(compare_one, numbers, chunksize=100):
                counts.update({kind: 1, "batches": batches})
                if difference:
                    differences += 1
                    print(difference, flush=True)
    batches = counts.pop("batches", 0)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    seconds = time.monotonic() - start
    print(f"{options.cases:,} cases ({kinds}), {batches:,} global batches, {seconds:.0f} s, {differences} differences")
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
