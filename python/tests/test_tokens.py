"""Compares token windows with slices of the files, and tests the document and the position of each
token, and buckets of documents by length."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warpfeed import Buckets, Concat, ConfigError, Loader, Ragged, TokenIds, Tokens, WarpfeedError

END = 3


@pytest.fixture(params=["u16", "u32"])
def corpus(request: Any, tmp_path: Path) -> tuple[Path, str, list[np.ndarray]]:
    random = np.random.default_rng(5)
    files = [random.integers(3, 60, count).astype(request.param.replace("u", "uint")) for count in (700, 30, 401)]
    files[0].tofile(tmp_path / "a.bin")
    np.save(tmp_path / "b.npy", files[1])
    files[2].tofile(tmp_path / "c.bin")
    return tmp_path, request.param, files


def windows(files: list[np.ndarray], length: int, stride: int) -> np.ndarray:
    cut = [np.lib.stride_tricks.sliding_window_view(file, length)[::stride] for file in files if len(file) >= length]
    return np.concatenate(cut).astype(np.int64)


def test_windows_are_slices_of_the_files(corpus: Any) -> None:
    path, dtype, files = corpus
    expected = windows(files, 33, 32)
    for mmap in (True, False):
        loader = Loader(Tokens(path, 33, stride=32, dtype=dtype, mmap=mmap), batch_size=4, shuffle=True, seed=1, output="numpy")
        assert len(loader.dataset) == len(expected)
        seen = []
        for batch in loader:
            assert batch.keys() == {"tokens"} and batch["tokens"].dtype == np.int64
            assert np.array_equal(batch["tokens"], expected[batch.ids])
            seen += batch.ids
        assert sorted(seen) == list(range(len(expected)))
    assert np.array_equal(loader.dataset[2]["tokens.npy"], expected[2])
    assert loader.dataset[0]["key"] == "a.bin/0..33" and loader.dataset[0]["label"] is None
    complete = Loader(Tokens(path, 50, dtype=dtype), batch_size=100, output="numpy")
    assert np.array_equal(next(iter(complete))["tokens"], windows(files, 50, 50)), "the stride must equal the length"


def test_documents_and_positions_give_a_mask(corpus: Any, torch: Any) -> None:
    path, dtype, files = corpus
    fields = {"tokens": TokenIds(64, "i32", eos_token_id=END, vocab_size=60)}
    [batch] = Loader(Tokens(path, 64, dtype=dtype), batch_size=100, fields=fields)
    tokens, document, position = batch["tokens"], batch["tokens.document"], batch["tokens.position"]
    assert tokens.dtype == document.dtype == position.dtype == torch.int32
    ends = torch.cumsum(tokens == END, 1)
    assert torch.equal(document, (ends - (tokens == END).long()).int())
    for row in range(len(tokens)):
        for number in document[row].unique():
            positions = (document[row] == number).nonzero().flatten()
            assert torch.equal(position[row, positions].long(), torch.arange(len(positions)))
    mask = document[:, :, None] == document[:, None, :]
    assert mask.shape == (len(tokens), 64, 64) and mask.diagonal(dim1=1, dim2=2).all()


def test_a_run_continues_and_ranks_share(corpus: Any) -> None:
    path, dtype, files = corpus
    options: dict[str, Any] = {"shuffle": True, "seed": 4, "output": "numpy", "drop_last": True}

    def opened(**extra: Any) -> Loader:
        return Loader(Tokens(path, 20, stride=10, dtype=dtype), global_batch_size=8, **options, **extra)

    loader = opened()
    complete = [batch["tokens"].copy() for batch in loader]
    again = opened()
    it = iter(again)
    for expected in complete[:3]:
        assert np.array_equal(next(it)["tokens"], expected)
    rest = [batch["tokens"].copy() for batch in opened(resume=again.state_dict(), num_workers=1)]
    assert np.array_equal(rest, complete[3:])
    shares = [opened(rank=rank, world_size=2) for rank in range(2)]
    for one, *parts in zip(complete, *shares, strict=True):
        joined = np.concatenate([part["tokens"] for part in parts])
        assert sorted(map(tuple, joined)) == sorted(map(tuple, one))


def test_wrong_types_are_rejected(corpus: Any) -> None:
    path, dtype, files = corpus
    other = "u32" if dtype == "u16" else "u16"
    with pytest.raises(WarpfeedError, match="u32|claims"):
        Loader(Tokens(path, 20, dtype=other))
    with pytest.raises(ConfigError, match="expected one of 'u16', 'u32'"):
        Loader(Tokens(path, 20, dtype="u8"))
    with pytest.raises(ConfigError, match="window length 0"):
        Loader(Tokens(path, 0, dtype=dtype))
    small = Loader(Tokens(path, 20, dtype=dtype), fields={"tokens": TokenIds(20, vocab_size=40)}, output="numpy")
    with pytest.raises(WarpfeedError, match=r"^sample \d+ \([ac]\.bin/\d+\.\.\d+\): .*the vocabulary has 40 tokens"):
        list(small)
    joined = Loader(
        Concat([Tokens(path / "a.bin", 20, dtype=dtype), Tokens(path / "c.bin", 20, dtype=dtype)]), batch_size=100,
        drop_field=["image", "label"], fields={"tokens": TokenIds(20)}, output="numpy",
    )  # fmt: skip
    assert np.array_equal(next(iter(joined))["tokens"], windows([files[0], files[2]], 20, 20))


class Documents:
    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.texts = [rng.integers(1, 1000, length).astype(np.int64) for length in rng.integers(0, 41, 300)]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens.npy": self.texts[index]}


@pytest.fixture
def documents() -> tuple[list[np.ndarray], Documents]:
    samples = Documents()
    return samples.texts, samples


def test_documents_of_similar_lengths_share_a_batch(documents: Any) -> None:
    texts, samples = documents
    bounds = [10, 20, 32]
    buckets = Buckets([len(text) for text in texts], bounds)

    def opened(**extra: Any) -> Loader:
        options: dict[str, Any] = {"batch_size": 8, "output": "numpy", "drop_field": ["image", "label"], **extra}
        fields = {"tokens.npy": Ragged("i64", (), 40)}
        return Loader(samples, buckets=buckets, fields=fields, collate=buckets.trim("tokens.npy"), **options)

    loader = opened(shuffle=True, seed=3)
    epochs = []
    for _ in range(2):
        seen, mixed, order = [], 0, []
        for batch in loader:
            tokens, longest = batch["tokens.npy"], max(len(texts[n]) for n in batch.ids)
            width = next((bound for bound in bounds if longest <= bound), 40)
            assert tokens.shape == (len(batch.ids), width)
            for row, number in zip(tokens, batch.ids, strict=True):
                assert np.array_equal(row, np.pad(texts[number], (0, width - len(texts[number]))))
            mixed += len({sum(len(texts[n]) > bound for bound in bounds) for n in batch.ids}) > 1
            seen += batch.ids
            order.append(width)
        assert sorted(seen) == list(range(300)) and mixed <= 3, mixed
        assert order != sorted(order), "batches must be shuffled"
        epochs.append(seen)
    assert epochs[0] != epochs[1]
    run = loader.epoch_from(1, 0)
    begun = [next(run)["tokens.npy"].copy() for _ in range(5)]
    rest = list(opened(shuffle=True, seed=3, resume=loader.state_dict()))
    complete = [batch["tokens.npy"].copy() for batch in loader.epoch_from(1, 0)]
    assert all(map(np.array_equal, [*begun, *(batch["tokens.npy"] for batch in rest)], complete))
    assert len(begun) + len(rest) == len(complete)
    chosen = opened(shuffle=True, seed=3, subset=[7, 200, 31, 9])
    assert sorted(n for batch in chosen for n in batch.ids) == [7, 9, 31, 200]
    again = pickle.loads(pickle.dumps(opened(shuffle=True, seed=3)))
    assert [batch.ids for batch in again.epoch_from(0, 0)] == [batch.ids for batch in loader.epoch_from(0, 0)]


def test_batches_of_a_budget_have_as_many_documents_as_fit(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    lengths = [int(length) for length in random.integers(1, 60, 200)]
    documents = [{"key": str(n), "tokens.npy": np.full(length, n, np.int64)} for n, length in enumerate(lengths)]

    class Documents:
        def __len__(self) -> int:
            return len(documents)

        def __getitem__(self, index: int) -> dict[str, Any]:
            return documents[index]

    buckets = Buckets(lengths, [10, 20, 40], budget=240)
    loader = Loader(
        Documents(), batch_size=20, shuffle=True, seed=1, drop_field=["image", "label"], buckets=buckets, output="numpy",
        fields={"tokens": Ragged("i64", (), 60)}, collate=buckets.trim("tokens"),
    )  # fmt: skip
    seen, sizes = [], {}
    for batch in loader:
        count, width = batch["tokens"].shape
        assert count * width <= 240 and batch.ids == [int(row[0]) for row in batch["tokens"]]
        sizes.setdefault(width, []).append(count)
        seen += batch.ids
    assert sorted(seen) == list(range(200))
    longest = max(lengths)
    for width, counts in sizes.items():
        below = max((bound for bound in (0, 10, 20, 40) if bound < width), default=0)
        samples = sum(below < length <= width for length in lengths)
        full = min(20, 240 // (width if width <= 40 else longest))
        assert sorted(counts, reverse=True) == [full] * (samples // full) + [samples % full] * (samples % full > 0)
    with pytest.raises(ConfigError, match="expected at least"):
        Loader(Documents(), buckets=Buckets(lengths, [10], budget=30), fields={"tokens": Ragged("i64", (), 60)},
               drop_field=["image", "label"])  # fmt: skip


def test_wrong_lengths_and_bounds_are_rejected(documents: Any) -> None:
    texts, samples = documents
    lengths = [len(text) for text in texts]
    options: dict[str, Any] = {"output": "numpy", "drop_field": ["image", "label"], "fields": {"tokens.npy": Ragged("i64", (), 40)}}
    invalid = [0] * 300
    loader = Loader(samples, buckets=Buckets(invalid, [4]), collate=Buckets(invalid, [4]).trim("tokens.npy"), **options)
    with pytest.raises(WarpfeedError, match=r"'tokens.npy' of sample \d+ has \d+ rows, but its length in Buckets is 0"):
        next(iter(loader))
    loader = Loader(samples, buckets=Buckets(lengths, [4]), collate=Buckets(lengths, [99]).trim("text"), **options)
    with pytest.raises(WarpfeedError, match="the loader has no ragged field 'text'"):
        next(iter(loader))
    with pytest.raises(ConfigError, match="299 lengths, but the source has 300 samples"):
        Loader(samples, buckets=Buckets(lengths[1:], [4]), **options)
    for extra, text in (({"repeat": 2}, "buckets and repeat"), ({"weights": [1.0] * 300}, "weights and buckets")):
        with pytest.raises(ConfigError, match=text):
            Loader(samples, buckets=Buckets(lengths, [4]), **extra, **options)
    with pytest.raises(ConfigError, match="8 follows 8; expected increasing numbers"):
        Buckets(lengths, [4, 8, 8])
    with pytest.raises(ConfigError, match=r"entry 1 is -1; expected a length"):
        Buckets([4, -1], [4])
    with pytest.raises(TypeError, match=r"warpfeed\.Buckets"):
        Loader(samples, buckets=lengths, **options)  # type: ignore[arg-type]
