"""Random datasets with random options, and the naive lists of the samples that their loaders must
deliver."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any, Sequence

import naive
import numpy as np
import warpfeed

#: Number of samples in the largest dataset.
MAX_SAMPLES = 48
EPOCHS = 4
#: The token that ends a document.
END = 3


class Files:
    """Datasets in files. The value ``x`` of a sample is its position in the dataset."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def numbers(self, count: int) -> Path:
        path = self.folder / f"{count}.npz"
        if not path.exists():
            np.savez(path, x=np.arange(count).reshape(count, 1), labels=np.arange(count) % 5)
        return path

    def others(self, count: int) -> Path:
        path = self.folder / f"other{count}.npz"
        if not path.exists():
            np.savez(path, z=np.arange(count).reshape(count, 1) + 1000)
        return path

    def tokens(self, seed: int) -> tuple[Path, list[int]]:
        path, rng = self.folder / f"{seed}.bin", random.Random(seed)
        ends = rng.choice([0.02, 0.1, 0.4])
        tokens = [END if rng.random() < ends else rng.randint(4, 60) for _ in range(rng.randint(20, 500))]
        if not path.exists():
            np.array(tokens, np.uint16).tofile(path)
        return path, tokens


class Case:
    """A dataset with options, and the samples that its loader must deliver."""

    def __init__(self, number: int, files: Files) -> None:
        self.rng = random.Random(number)
        self.files, self.options = files, dict[str, Any]()
        #: The arguments of ``set_mixture`` or ``set_weights``, by the index of the batch before the
        #: call.
        self.planned_calls: dict[int, tuple[list[float], int]] = {}
        self.seed = self.rng.getrandbits(6) * 0x9E3779B97F4A7C15 & naive.MASK
        self.last: Any = self.rng.choice(["keep", "drop", "pad"])
        self.batch = self.rng.randint(3, 11)
        self.fields = {"x": warpfeed.NdArray("i64", [1])}
        self.first_samples = [0]
        self.passes = 1

    def loader(self, **options: Any) -> warpfeed.Loader:
        return warpfeed.Loader(
            self.data, seed=self.seed, global_batch_size=self.batch_size, last_batch=self.last, fields=self.fields,
            drop_field=["image", "label"], output="numpy", **self.options, **options,
        )  # fmt: skip

    @property
    def batch_size(self) -> int | None:
        """The global batch size, unless the data determines it."""
        return self.batch

    data: Any

    # A subclass overrides `samples` or `batches`.

    def samples(self, epoch: int) -> list[int]:
        raise NotImplementedError

    def batches(self, epoch: int) -> tuple[list[list[int]], Sequence[int]]:
        """Returns the global batches of an epoch, and the samples that are used as padding."""
        samples = self.samples(epoch)
        batches = [samples[first : first + self.batch] for first in range(0, len(samples), self.batch)]
        if self.last == "drop" and batches and len(batches[-1]) < self.batch:
            batches.pop()
        return batches, samples

    def min_samples(self, world: int, samples: int) -> int:
        """Returns the minimum number of samples in the batch of a rank, for a global batch of
        `samples` samples."""
        return {"keep": 1, "drop": 0, "pad": -(-self.batch // world)}[self.last]

    def check(self, batch: Any) -> None:
        parts = [max(first for first in self.first_samples if first <= id) for id in batch.ids]
        assert batch["x"][:, 0].tolist() == [id - first for id, first in zip(batch.ids, parts, strict=True)], "values"

    def calls(self, total: int, steps: int) -> list[tuple[int, list[float]]]:
        """Returns the positions from which planned values apply, for `total` samples and `steps`
        batches per epoch."""
        results = []
        for step, (values, after) in sorted(self.planned_calls.items()):
            index = step + 1 + after
            results.append((index // steps * total + index % steps * self.batch, values))
        return results

    def first_affected_batch(self, step: int) -> tuple[int, int]:
        """Returns the first batch that the call after batch `step` affects."""
        raise NotImplementedError

    def indices(self, count: int) -> list[int] | None:
        """Returns random indices, which may contain samples several times, or `None` for the whole
        dataset."""
        if self.rng.random() < 0.7:
            return None
        several = self.rng.random() < 0.3
        selected = self.rng.choices(range(count), k=count) if several else self.rng.sample(range(count), count)
        return selected[: self.rng.randint(-(-count // 2), count)]

    def random_weights(self, count: int) -> list[float]:
        weights = [self.rng.choice([0.0, 0.5, 1.0, 2.0, self.rng.random()]) for _ in range(count)]
        return weights if any(weights) else [1.0] * count


class Plain(Case):
    """One dataset, or several datasets as ``Zip`` or ``Concat``, in every kind of order."""

    def __init__(self, number: int, files: Files) -> None:
        super().__init__(number, files)
        rng, count = self.rng, self.rng.randint(12, MAX_SAMPLES)
        self.data = files.numbers(count)
        shape = rng.choice(["one", "zip", "concat"])
        self.zipped = shape == "zip"
        if shape == "zip":
            self.data = warpfeed.Zip([self.data, files.others(count)])
            self.fields = {**self.fields, "z": warpfeed.NdArray("i64", [1])}
        if shape == "concat":
            parts = [rng.randint(1, 20) for _ in range(rng.randint(1, 3))]
            self.data = warpfeed.Concat([self.data, *map(files.numbers, parts)])
            self.first_samples = [sum([count, *parts][:k]) for k in range(len(parts) + 1)]
            count += sum(parts)
        self.count, self.subset = count, self.indices(count)
        self.selected = list(range(count)) if self.subset is None else self.subset
        if self.subset is not None:
            self.options["subset"] = self.subset
        self.passes = rng.choice([1, 1, 2, 3])
        if self.passes > 1:
            self.options["repeat"] = self.passes
        self.kind = rng.choice(["sequential", "shuffle", "window", "weights", "balanced", "sampler"])
        self.window = rng.choice([1, 7, 20, 70, 200])
        self.weights = self.random_weights(count)
        if not any(self.weights[n] for n in self.selected):
            self.weights = [1.0] * count
        created: dict[str, dict[str, Any]] = {
            "shuffle": {"shuffle": True},
            "window": {"shuffle_window": self.window},
            "weights": {"weights": self.weights},
            "balanced": {"balanced": True},
            "sampler": {"sampler": self.order},
        }
        self.options.update(created.get(self.kind, {}))
        self.history: list[tuple[int, list[float]]] = []
        if self.kind in ("weights", "balanced") and rng.random() < 0.6:
            self.plan()

    def plan(self) -> None:
        total = len(self.selected) * self.passes
        self.steps = total // self.batch if self.last == "drop" else -(-total // self.batch)
        for _ in range(self.rng.randint(1, 3)):
            weights = self.random_weights(self.count)
            if self.steps and any(weights[n] for n in self.selected):
                self.planned_calls[self.rng.randint(0, 12)] = weights, self.rng.randint(0, 5)
        self.history = self.calls(total, max(1, self.steps))

    def first_affected_batch(self, step: int) -> tuple[int, int]:
        return divmod(step + 1 + self.planned_calls[step][1], self.steps)

    def order(self, epoch: int) -> list[int]:
        """Returns the samples of an epoch, as the program's sampler function returns them."""
        backwards = self.selected[::-1]
        return backwards[: len(backwards) - epoch % 3]

    def samples(self, epoch: int) -> list[int]:
        return [sample for n in range(self.passes) for sample in self.pass_samples(epoch * self.passes + n)]

    def pass_samples(self, number: int) -> list[int]:
        count = len(self.selected)
        if self.kind == "sampler":
            return self.order(number)
        if self.kind == "sequential":
            places: Sequence[int] = range(count)
        elif self.kind == "shuffle":
            places = naive.shuffled(count, self.seed, number)
        elif self.kind == "window":
            places = naive.windowed(count, self.seed, number, self.window)
        else:
            places = self.drawn(number, count)
        return [self.selected[place] for place in places]

    def drawn(self, number: int, count: int) -> list[int]:
        results = []
        labels = [self.label(n) for n in self.selected]
        initial_weights = [1 / labels.count(label) for label in labels]
        if self.kind == "weights":
            initial_weights = [self.weights[n] for n in self.selected]
        for place in range(count):
            weights = naive.active_values(self.history, number * count + place)
            current_weights = initial_weights if weights is None else [weights[n] for n in self.selected]
            results.append(naive.drawn(current_weights, self.seed, number, place))
        return results

    def label(self, sample: int) -> int:
        return (sample - max(first for first in self.first_samples if first <= sample)) % 5

    def check(self, batch: Any) -> None:
        super().check(batch)
        if self.zipped:
            assert (batch["z"] == batch["x"] + 1000).all(), "values of the second dataset"


class Mixed(Case):
    """A mixture, with a schedule and calls to ``set_mixture``."""

    def __init__(self, number: int, files: Files) -> None:
        super().__init__(number, files)
        rng = self.rng
        counts = [rng.randint(8, MAX_SAMPLES) for _ in range(rng.randint(1, 5))]
        self.counts, self.first_samples = counts, [sum(counts[:k]) for k in range(len(counts))]
        values = rng.choice([None, *range(20, 140)])
        self.single_dataset = rng.random() < 0.4
        self.sizes: list[int] = []
        if self.single_dataset and rng.random() < 0.5:
            self.sizes = [rng.randint(3, 11) for _ in counts]
            self.batch = max(self.sizes)
        #: Number of positions per draw.
        self.unit = self.batch if self.single_dataset else 1
        self.round: int = values or (100 if self.single_dataset else 10_000)
        self.passes = rng.choice([1, 1, 1, 2])
        if self.passes > 1:
            self.options["repeat"] = self.passes
        self.parts = [list(range(count)) for count in counts]
        if rng.random() < 0.3:
            # Include at least one batch of samples.
            smallest = max(self.unit, 4)
            retained = [rng.randint(min(smallest, count), count) for count in counts]
            self.parts = [rng.sample(part, n) for part, n in zip(self.parts, retained, strict=True)]
            subset = [first + n for first, part in zip(self.first_samples, self.parts, strict=True) for n in part]
            self.options["subset"] = subset
        self.kind = rng.choice(["shuffle", "shuffle", "window", "weights"])
        self.window = rng.choice([1, 7, 20, 70])
        self.weights = [rng.choice([0.25, 1.0, 3.0]) for _ in range(sum(counts))]
        if self.kind == "window":
            self.options["shuffle_window"] = self.window
        if self.kind == "weights":
            self.options["weights"] = self.weights
        lens = [len(part) for part in self.parts]
        self.single_pass = [k for k in range(len(counts)) if rng.random() < 0.15 and lens[k] >= self.unit]
        self.first = self.random_shares()
        if self.kind == "weights":
            # Weights are read only for datasets whose first share is not 0.
            self.first = [share or 1.0 for share in self.first]
        #: Number of positions per pass.
        self.total = sum(lens) // self.unit * self.unit
        if self.sizes:
            per_round = sum(n * size for n, size in zip(naive.quotas(self.first, self.round), self.sizes, strict=True))
            self.total = sum(lens) * self.round // per_round * self.unit
        self.steps = self.total * self.passes // self.batch
        if self.last != "drop":
            self.steps = -(-self.total * self.passes // self.batch)
        self.limits = [
            len(part) // self.units[k] if k in self.single_pass else None for k, part in enumerate(self.parts)
        ]
        self.schedule: list[Any] = []
        changes = self.changes()
        data = [(files.numbers(count), share) for count, share in zip(counts, self.first, strict=True)]
        self.data = warpfeed.Mixture(
            data, schedule=changes, draws_per_round=values, single_pass=self.single_pass,
            single_dataset_batches=self.single_dataset, global_batch_sizes=self.sizes,
        )  # fmt: skip
        self.history: list[tuple[int, list[float]]] = []
        if self.steps:
            if rng.random() < 0.6:
                for _ in range(rng.randint(1, 3)):
                    self.planned_calls[rng.randint(0, 12)] = self.random_shares(), rng.randint(0, 5)
            self.history = self.calls(self.total * self.passes, self.steps)
        self.drawn: list[list[int]] | None = None

    @property
    def units(self) -> list[int]:
        """Returns the number of samples per draw from each dataset."""
        return self.sizes or [self.unit] * len(self.counts)

    @property
    def batch_size(self) -> int | None:
        return None if self.sizes else self.batch

    def position(self, samples: int) -> int:
        """Returns the position that a schedule in samples refers to."""
        if not self.sizes:
            return samples
        delivered, number = 0, 0
        for count in naive.round_counts(self.limits, lambda draw: self.planned_shares(draw * self.unit), self.round):
            if delivered >= samples or not any(count):
                break
            delivered += sum(n * size for n, size in zip(count, self.sizes, strict=True))
            number += 1
        return number * self.round * self.unit

    def random_shares(self) -> list[float]:
        # With `single_pass`, no share is 0, so that the length of the run does not change.
        shares = [float(self.rng.randint(1, 4)) for _ in self.counts]
        if not self.single_pass and self.rng.random() < 0.3:
            shares[self.rng.randrange(len(shares))] = 0.0
        return shares if any(shares) else [1.0] * len(shares)

    def changes(self) -> list[warpfeed.MixtureChange]:
        created, end, epoch = [], 0, self.total * self.passes
        for _ in range(self.rng.randint(0, 2) if self.steps else 0):
            new, start = self.random_shares(), end + self.rng.randint(0, 60)
            unit = self.rng.choice(["step", "sample", "epoch"])
            curve: Any = self.rng.choice(["linear", "cosine"])
            if unit == "sample":
                first = self.rng.randint(0, 600) if self.sizes else start
                last = first + self.rng.choice([0, self.rng.randint(1, 400)])
                start, until = self.position(first), self.position(last)
                if start < end:
                    continue
                end = until
                created.append(warpfeed.MixtureChange(new, sample=(first, last) if end > start else first, curve=curve))
            elif unit == "step":
                step = start // epoch * self.steps + start % epoch // self.batch + 1
                start = end = step // self.steps * epoch + step % self.steps * self.batch
                created.append(warpfeed.MixtureChange(new, step=step))
            else:
                number = -(-start // epoch)
                start, end = number * epoch, (number + 1) * epoch
                created.append(warpfeed.MixtureChange(new, epoch=(number, number + 1), curve=curve))
            self.schedule.append((start, end, curve, new))
        return created

    def order(self, dataset: int, number: int) -> list[int]:
        """Returns the samples of one pass over a dataset."""
        part, seed = self.parts[dataset], naive.dataset_seed(self.seed, dataset)
        if self.kind == "weights":
            weights = [self.weights[self.first_samples[dataset] + n] for n in part]
            places: Sequence[int] = [naive.drawn(weights, seed, number, place) for place in range(len(part))]
        elif self.kind == "window":
            places = naive.windowed(len(part), seed, number, self.window)
        else:
            places = naive.shuffled(len(part), seed, number)
        return [self.first_samples[dataset] + part[place] for place in places]

    def planned_shares(self, now: int) -> list[float]:
        return naive.shares_at(now, self.first, self.schedule, self.round * self.unit)

    def shares(self, draw: int) -> list[float]:
        now = draw * self.unit
        return naive.active_values(self.history, now) or self.planned_shares(now)

    def draws(self, epoch: int) -> list[list[int]]:
        """Returns the samples of the draws of an epoch."""
        count = self.total * self.passes // self.unit
        if self.drawn is None:
            orders = [functools.partial(self.order, dataset) for dataset in range(len(self.counts))]
            self.drawn = naive.batches_of_mixture(
                orders, self.limits, self.shares, self.seed, self.round, self.units, (EPOCHS + 1) * count
            )
        return self.drawn[epoch * count : (epoch + 1) * count]

    def samples(self, epoch: int) -> list[int]:
        return [sample for draw in self.draws(epoch) for sample in draw]

    def batches(self, epoch: int) -> tuple[list[list[int]], Sequence[int]]:
        return (self.draws(epoch), self.samples(epoch)) if self.sizes else super().batches(epoch)

    def min_samples(self, world: int, samples: int) -> int:
        return -(-samples // world) if self.sizes and self.last == "pad" else super().min_samples(world, samples)

    def first_affected_batch(self, step: int) -> tuple[int, int]:
        index = step + 1 + self.planned_calls[step][1]
        total, span = self.total * self.passes, self.round * self.unit
        index = index // self.steps * total + index % self.steps * self.batch
        epoch, batch = -(-index // span) * span // total, -(-index // span) * span % total // self.batch
        # A change that falls on dropped samples affects the next epoch.
        return (epoch, batch) if batch < self.steps else (epoch + 1, 0)


class Bucketed(Case):
    """Batches of similar lengths, with and without a budget."""

    def __init__(self, number: int, files: Files) -> None:
        super().__init__(number, files)
        rng, count = self.rng, self.rng.randint(1, MAX_SAMPLES)
        self.data, subset = files.numbers(count), self.indices(count)
        lengths = [rng.randint(1, 60) for _ in range(count)]
        self.bounds = sorted({rng.randint(1, 70) for _ in range(rng.randint(0, 4))})
        self.budget = rng.choice([None, rng.randint(70, 470)])
        if self.budget is not None and self.last == "pad":
            self.last = "keep"
        self.selected = list(range(count)) if subset is None else subset
        self.lengths = [lengths[n] for n in self.selected]
        self.options = {"buckets": warpfeed.Buckets(lengths, self.bounds, budget=self.budget)}
        if subset is not None:
            self.options["subset"] = subset
        self.shuffles = rng.random() < 0.7
        if self.shuffles:
            self.options["shuffle"] = True

    def batches(self, epoch: int) -> tuple[list[list[int]], Sequence[int]]:
        seed = self.seed if self.shuffles else None
        drop = self.last == "drop"
        result = naive.batches_of_buckets(self.lengths, self.bounds, self.batch, self.budget, drop, seed, epoch)
        return [[self.selected[n] for n in batch] for batch in result[0]], [self.selected[n] for n in result[1]]

    def min_samples(self, world: int, samples: int) -> int:
        return 1 if self.budget is not None else super().min_samples(world, samples)


class Packed(Case):
    """Documents packed into rows."""

    def __init__(self, number: int, files: Files) -> None:
        super().__init__(number, files)
        rng = self.rng
        path, tokens = files.tokens(rng.randrange(200))
        self.length, window, max_documents = rng.randint(5, 60), rng.choice([1, 5, 30, 1024]), rng.choice([1, 3, 128])
        self.rows = naive.packed(tokens, END, self.length, window, max_documents)
        self.data = warpfeed.PackedTokens(
            path, self.length, END, window_documents=window, max_documents=max_documents, pad_token_id=1
        )
        self.fields = None  # type: ignore[assignment]
        self.shuffles = rng.random() < 0.7
        if self.shuffles:
            self.options["shuffle"] = True

    def samples(self, epoch: int) -> list[int]:
        count = len(self.rows)
        return list(naive.shuffled(count, self.seed, epoch) if self.shuffles else range(count))

    def check(self, batch: Any) -> None:
        for place, id in enumerate(batch.ids):
            row, flat = self.rows[id], [token for document in self.rows[id] for token in document]
            rest = self.length - len(flat)
            assert batch["tokens"][place].tolist() == flat + [1] * rest, "tokens"
            numbers = [n for n, document in enumerate(row) for _ in document] + [-1] * rest
            assert batch["tokens.document"][place].tolist() == numbers, "documents"
            positions = [n for document in row for n in range(len(document))] + list(range(rest))
            assert batch["tokens.position"][place].tolist() == positions, "positions"


KINDS: dict[str, type[Case]] = {"plain": Plain, "mixture": Mixed, "buckets": Bucketed, "packing": Packed}
