"""Reference implementations of the sample orders, with plain lists. They share only the definition
of random numbers and the order of floating-point operations with the loader."""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Iterator, Sequence

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def epoch_key(seed: int, epoch: int) -> int:
    return mix(seed ^ mix(epoch ^ 0x5851F42D4C957F2D))


@functools.lru_cache(1 << 14)
def permutation(count: int, key: int) -> tuple[int, ...]:
    """Returns a permutation from a Feistel network with cycle walking."""
    half = max(1, ((max(count, 1) - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1
    # Tabulate each round function over every possible right half.
    rounds = [[mix(right ^ mix((key + step) & MASK)) & low for right in range(low + 1)] for step in range(8)]
    order = []
    for value in range(count):
        while True:
            left, right = value >> half, value & low
            for table in rounds:
                left, right = right, left ^ table[right]
            value = left << half | right
            if value < count:
                break
        order.append(value)
    return tuple(order)


def shuffled(count: int, seed: int, epoch: int) -> tuple[int, ...]:
    return permutation(count, epoch_key(seed, epoch))


def windowed(count: int, seed: int, epoch: int, window: int) -> list[int]:
    """Returns shuffled blocks, shuffled within windows of blocks."""
    block = min(max(1, -(-window // 64)), max(1, count))
    key, per_window = epoch_key(seed, epoch), max(1, -(-min(window, count) // block))
    blocks = [range(first, min(first + block, count)) for first in range(0, count, block)]
    blocks = [blocks[n] for n in permutation(len(blocks), key)]
    order = []
    for number, first in enumerate(range(0, len(blocks), per_window)):
        samples = [sample for block in blocks[first : first + per_window] for sample in block]
        order += [samples[n] for n in permutation(len(samples), mix(key ^ mix(number)))]
    return order


@functools.lru_cache(1 << 10)
def alias_table(weights: tuple[float, ...]) -> list[tuple[float, int]]:
    """Returns Vose's alias table: for each sample, the probability that its cell yields the sample,
    and the sample that the cell yields otherwise."""
    largest = max(weights)
    total = 0.0
    for weight in weights:
        total += weight / largest
    mean = total / len(weights)
    probabilities, aliases = [weight / largest / mean for weight in weights], list(range(len(weights)))
    small, large = [n for n, x in enumerate(probabilities) if x < 1], [n for n, x in enumerate(probabilities) if x >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        aliases[low] = high
        probabilities[high] -= 1 - probabilities[low]
        if probabilities[high] < 1:
            small.append(large.pop())
    for n in small + large:
        probabilities[n], aliases[n] = (1.0, n) if weights[n] > 0 else (0.0, weights.index(largest))
    return list(zip(probabilities, aliases, strict=True))


def drawn(weights: Sequence[float], seed: int, epoch: int, position: int) -> int:
    """Returns the sample at `position`, drawn with probability proportional to its weight."""
    table = alias_table(tuple(weights))
    state = 0
    for word in (mix(seed ^ 0x6A09E667F3BCC908), epoch, position):
        state = mix(((state + GOLDEN) & MASK) ^ mix((word + GOLDEN) & MASK))
    numbers = [mix((state + n * GOLDEN) & MASK) for n in (1, 2)]
    cell = numbers[0] * len(table) >> 64
    probability, alias = table[cell]
    return cell if (numbers[1] >> 11) / 2**53 < probability else alias


def batches_of_buckets(
    lengths: Sequence[int],
    bounds: Sequence[int],
    batch: int,
    budget: int | None,
    drop: bool,
    seed: int | None,
    epoch: int,
) -> tuple[list[list[int]], list[int]]:
    """Returns the batches of an epoch, and the samples available as padding. Without a seed,
    nothing is shuffled."""
    key = 0 if seed is None else epoch_key(seed, epoch)
    buckets: list[tuple[int, list[int]]] = []
    for bucket in range(len(bounds) + 1):
        samples = [n for n, length in enumerate(lengths) if sum(length > bound for bound in bounds) == bucket]
        if samples:
            if seed is not None:
                order = permutation(len(samples), mix(key ^ mix(len(buckets) + 1)))
                samples = [samples[n] for n in order]
            buckets.append((bounds[bucket] if bucket < len(bounds) else max(lengths), samples))
    all_samples = [sample for _, samples in buckets for sample in samples]
    if budget is None:
        batches = [all_samples[first : first + batch] for first in range(0, len(all_samples), batch)]
        full = len(all_samples) // batch
        if seed is not None:
            batches = [batches[n] for n in permutation(full, key)] + batches[full:]
        return batches[:full] if drop else batches, [sample for batch in batches for sample in batch]
    batches = []
    for width, samples in buckets:
        count = min(batch, budget // max(1, width))
        in_bucket = [samples[first : first + count] for first in range(0, len(samples), count)]
        batches += [samples for samples in in_bucket if len(samples) == count or not drop]
    return [batches[n] for n in permutation(len(batches), key)] if seed is not None else batches, all_samples


def quotas(shares: list[float], draws: int) -> list[int]:
    """Returns the number of draws from each dataset, by the largest remainder method."""
    largest = max(shares)
    if largest == 0:
        return [0] * len(shares)
    total = 0.0
    for share in shares:
        total += share / largest
    exact = [share / largest / total * draws for share in shares]
    counts = [int(x) for x in exact]
    order = sorted((k for k in range(len(shares)) if shares[k] > 0), key=lambda k: -(exact[k] % 1))
    for k in (order * draws)[: draws - sum(counts)]:
        counts[k] += 1
    return counts


def normalized(shares: list[float]) -> list[float]:
    # Round as the loader does, because different rounding could flip a tie between remainders.
    largest, total = max(shares), 0.0
    for share in shares:
        total += share / largest
    return [share / largest / total for share in shares]


def half_cosine(x: float) -> float:
    """Computes (1 - cos(pi x)) / 2 with the loader's operations."""
    angle = math.pi / 2 * x
    term = sine = angle
    for n in range(2, 24, 2):
        term *= -angle * angle / (n * (n + 1.0))
        sine += term
    assert math.isclose(sine * sine, (1 - math.cos(math.pi * x)) / 2, abs_tol=1e-14)
    return sine * sine


def shares_at(position: int, first: list[float], schedule: list[Any], span: int) -> list[float]:
    """Returns the shares after `position` samples. A schedule entry is (start, end, curve,
    shares)."""
    current, previous = first, normalized(first)
    for start, end, curve, shares in schedule:
        steps = min((end - start) // span, 100)
        for step in range(steps):
            if start + (end - start) * step // steps <= position:
                x = (step + 0.5) / steps
                x = x if curve == "linear" else half_cosine(x)
                current = [a + (b - a) * x for a, b in zip(previous, normalized(shares), strict=True)]
        if end <= position:
            current = shares
        previous = normalized(shares)
    return current


def active_values(calls: list[tuple[int, list[float]]], position: int) -> list[float] | None:
    """Returns the values at `position`. A call replaces earlier calls that would take effect at its
    position or later."""
    active: list[tuple[int, list[float]]] = []
    for call in calls:
        active = [earlier for earlier in active if earlier[0] < call[0]] + [call]
    return next((values for start, values in reversed(active) if start <= position), None)


def repeat_passes(order: Callable[[int], Sequence[int]]) -> Iterator[int]:
    """Yields the samples of all passes. ``order(pass)`` returns the samples of one pass."""
    number = 0
    while True:
        yield from order(number)
        number += 1


def dataset_seed(seed: int, dataset: int) -> int:
    """Returns the seed for the order of one dataset of a mixture."""
    return mix(seed ^ mix(dataset))


def round_counts(
    limits: list[int | None], shares: Callable[[int], list[float]], round_draws: int
) -> Iterator[list[int]]:
    """Returns the number of draws from each dataset in each round of a mixture. ``limits`` contains
    the maximum number of draws from each dataset in the run, or None without a maximum, and
    ``shares(draw)`` returns the shares at a draw."""
    remaining = [1 << 60 if limit is None else limit for limit in limits]
    number = 0
    while True:
        current = [share if remaining[k] else 0.0 for k, share in enumerate(shares(number * round_draws))]
        counts = [0] * len(remaining)
        while True:
            additional = quotas(current, round_draws - sum(counts))
            exhausted = [k for k in range(len(remaining)) if additional[k] > remaining[k]]
            if not exhausted:
                counts = [a + b for a, b in zip(counts, additional, strict=True)]
                break
            for k in exhausted:
                counts[k], current[k] = remaining[k], 0.0
        remaining = [a - b for a, b in zip(remaining, counts, strict=True)]
        yield counts
        if sum(counts) < round_draws:
            return
        number += 1


def batches_of_mixture(
    orders: Sequence[Callable[[int], Sequence[int]]],
    limits: list[int | None],
    shares: Callable[[int], list[float]],
    seed: int,
    round_draws: int,
    units: Sequence[int],
    draws: int,
) -> list[list[int]]:
    """Returns the samples of the first draws of a mixture. ``orders[k](pass)`` returns the samples
    of one pass over dataset k, and a draw takes ``units[k]`` samples from it."""
    streams = [repeat_passes(order) for order in orders]
    batches: list[list[int]] = []
    for number, counts in enumerate(round_counts(limits, shares, round_draws)):
        tickets = [[next(streams[k]) for _ in range(units[k])] for k in range(len(units)) for _ in range(counts[k])]
        batches += [tickets[index] for index in shuffled(len(tickets), ~seed & MASK, number)]
        if len(batches) >= draws:
            break
    return batches[:draws]


def mixed(
    orders: Sequence[Callable[[int], Sequence[int]]],
    limits: list[int | None],
    shares: Callable[[int], list[float]],
    seed: int,
    round_draws: int,
    unit: int,
    samples: int,
) -> list[int]:
    """Returns the first samples of a mixture with draws of `unit` samples. ``shares(position)``
    returns the shares after `position` samples."""
    units, draws = [unit] * len(orders), -(-samples // unit)
    batches = batches_of_mixture(orders, limits, lambda draw: shares(draw * unit), seed, round_draws, units, draws)
    return [sample for batch in batches for sample in batch][:samples]


def divide_among_ranks(
    batch: list[int], padding: Sequence[int], min_samples: int, world: int
) -> list[list[tuple[int, bool]]]:
    """Divides samples among ranks. A rank with fewer than `min_samples` samples gets padding."""
    counts = [0] * world
    for n in range(len(batch)):
        counts[n % world] += 1
    samples, used = iter(batch), 0
    ranks = []
    for count in counts:
        rank = [(next(samples), True) for _ in range(count)]
        while len(rank) < min_samples:
            rank.append((padding[used % len(padding)], False))
            used += 1
        ranks.append(rank)
    return ranks


def packed(tokens: list[int], end: int, length: int, window: int, max_documents: int) -> list[list[list[int]]]:
    """Returns the documents of each row. A document longer than `length` is split into pieces. Each
    piece goes into the first row of its window that has room for it, or into a new row."""
    documents: list[list[int]] = [[]]
    for token in tokens:
        documents[-1].append(token)
        if token == end:
            documents.append([])
    documents = [document for document in documents if document]
    rows: list[list[list[int]]] = []
    for start in range(0, len(documents), window):
        open_rows: list[list[list[int]]] = []
        for document in documents[start : start + window]:
            for first in range(0, len(document), length):
                piece = document[first : first + length]
                free = length - len(piece)
                fits = (row for row in open_rows if len(row) < max_documents and sum(map(len, row)) <= free)
                row = next(fits, None)
                if row is None:
                    open_rows.append(row := [])
                row.append(piece)
        rows += open_rows
    return rows
