"""Tests that packed rows contain whole documents, placed first-fit, and that ``cu_seqlens`` returns
the cumulative lengths of the documents and of the padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warpfeed
from naive import packed
from warpfeed import ConfigError, Loader, PackedIds, PackedTokens

END = 3


def write(path: Path, seed: int) -> list[int]:
    random = np.random.default_rng(seed)
    tokens = random.integers(4, 60, 900)
    tokens[random.random(900) < 0.1] = END
    tokens.astype(np.uint16).tofile(path)
    return [int(token) for token in tokens]


@pytest.mark.parametrize(("length", "window", "max_documents"), [(16, 10, 128), (40, 1024, 3), (7, 1, 128)])
def test_rows_equal_naive_first_fit(tmp_path: Path, length: int, window: int, max_documents: int) -> None:
    tokens = write(tmp_path / "a.bin", length)
    expected = packed(tokens, END, length, window, max_documents)
    path = tmp_path / "a.bin"
    data = PackedTokens(path, length, END, window_documents=window, max_documents=max_documents, pad_token_id=1)
    loader = Loader(data, batch_size=4, shuffle=True, seed=1, output="numpy")
    assert len(loader.dataset) == len(expected)
    seen: list[int] = []
    for batch in loader:
        assert batch.keys() == {"tokens", "tokens.document", "tokens.position", "tokens.ends"}
        for row, id in enumerate(batch.ids):
            flat = [token for document in expected[id] for token in document]
            numbers = [n for n, document in enumerate(expected[id]) for _ in document]
            positions = [n for document in expected[id] for n in range(len(document))]
            rest = length - len(flat)
            assert batch["tokens"][row].tolist() == flat + [1] * rest
            assert batch["tokens.document"][row].tolist() == numbers + [-1] * rest
            assert batch["tokens.position"][row].tolist() == positions + list(range(rest))
        seen += batch.ids
    assert sorted(seen) == list(range(len(expected)))


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_cumulative_lengths_describe_the_rows(tmp_path: Path, output: str, request: Any) -> None:
    if output == "torch":
        request.getfixturevalue("torch")
    expected = packed(write(tmp_path / "a.bin", 2), END, 32, 1024, 128)
    loader = Loader(PackedTokens(tmp_path / "a.bin", 32, END), batch_size=5, output=output)
    for batch in loader:
        lengths, longest = warpfeed.cu_seqlens(batch)
        assert str(lengths.dtype).endswith("int32")
        requested = [0]
        for row, id in enumerate(batch.ids):
            for document in expected[id]:
                requested.append(requested[-1] + len(document))
            requested.append(32 * (row + 1))
        assert sorted({*lengths.tolist()}) == sorted({*requested})
        assert len(lengths) == len(batch.ids) * 33 + 1 and lengths.tolist() == sorted(lengths.tolist())
        assert longest == max(b - a for a, b in zip(requested, requested[1:], strict=False))


def test_bad_arguments_are_rejected(tmp_path: Path) -> None:
    write(tmp_path / "a.bin", 2)
    with pytest.raises(ConfigError, match="end of a document is token 70000"):
        Loader(PackedTokens(tmp_path / "a.bin", 32, 70_000))
    with pytest.raises(ConfigError, match="window_documents=0"):
        Loader(PackedTokens(tmp_path / "a.bin", 32, END, window_documents=0))
    with pytest.raises(ConfigError, match="no PackedIds field 'other'"):
        warpfeed.cu_seqlens({"tokens": np.zeros((2, 3))}, "other")
    loader = Loader(
        PackedTokens(tmp_path / "a.bin", 32, END), batch_size=4, fields={"tokens": PackedIds(32, 1)}, output="numpy"
    )
    with pytest.raises(warpfeed.WarpfeedError, match="expected at most 1"):
        next(iter(loader))
