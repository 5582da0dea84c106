"""Compares batches with naive lists, for random datasets, options, ranks and positions.
``orders.py`` runs more cases."""

from __future__ import annotations

import collections
import os
from pathlib import Path
from typing import Any

import naive
import pytest
from order_cases import KINDS, Files
from orders import compare_case

CASES = int(os.environ.get("WARPFEED_ORDERS", "240"))


def test_random_orders_equal_naive_lists(tmp_path: Path) -> None:
    files, counts, different = Files(tmp_path), collections.Counter[str](), []
    for number in range(CASES):
        kind, batches, difference = compare_case(number, files)
        counts.update({kind: 1, "batches": batches})
        if difference:
            different.append(difference)
    print(dict(counts))
    assert not different, "\n".join(different)
    assert CASES < 240 or (set(KINDS) <= set(counts) and counts["batches"] > 4 * CASES)


def swapped(order: Any) -> Any:
    """Returns an order with the first two samples swapped."""

    def changed(*args: Any) -> list[int]:
        result = list(order(*args))
        result[:2] = result[:2][::-1]
        return result

    return changed


FAULTS: dict[str, tuple[str, str, Any]] = {
    "the order of an epoch": ("plain", "shuffled", swapped),
    "windows": ("plain", "windowed", swapped),
    "draws by weight": ("plain", "drawn", lambda order: lambda w, s, e, p: order(w, s, e, p + 1)),
    "the time of a call": ("plain", "active_values", lambda effect: lambda calls, now: effect(calls, now + 1)),
    "the shares of a round": ("mixture", "quotas", lambda quotas: lambda s, n: sorted(quotas(s, n))),
    "steps of a schedule": ("mixture", "half_cosine", lambda curve: lambda x: x),
    "samples of a rank": ("plain", "divide_among_ranks", lambda cut: lambda *args: cut(*args)[::-1]),
    "shuffled buckets": ("buckets", "permutation", swapped),
    "first-fit": ("packing", "packed", lambda pack: lambda t, e, n, window, limit: pack(t, e, n, window + 1, limit)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_notices_a_fault(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, name, change = FAULTS[fault]
    files = Files(tmp_path)
    naive.permutation.cache_clear()
    monkeypatch.setattr(naive, name, change(getattr(naive, name)))
    assert any(compare_case(number, files, kind)[2] for number in range(500)), f"{fault}: no difference"
