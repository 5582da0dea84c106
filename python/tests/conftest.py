"""Test fixtures and helpers."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Iterator, NoReturn

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
MINI = ROOT / "datasets" / "mini"


#: The requirements that a machine may lack, as in the Rust tests.
WORDS = [
    line.split()[0]
    for line in (ROOT / "tests" / "support" / "require.txt").read_text().splitlines()
    if not line.startswith("#")
]
#: If one of these is missing, tests that need it fail instead of being skipped.
REQUIRED = [word.strip() for word in os.environ.get("WARPFEED_REQUIRE", "").split(",") if word.strip()]

#: The process's original stderr, which pytest does not capture.
STDERR = 2


def pytest_configure(config: pytest.Config) -> None:
    global STDERR
    STDERR = os.dup(2)
    config.addinivalue_line("markers", "needs(word, present): calls `missing(word)` unless `present` is true")
    if unknown := set(REQUIRED) - set(WORDS):
        known = ", ".join(WORDS)
        raise pytest.UsageError(f"WARPFEED_REQUIRE={','.join(sorted(unknown))!r}: expected one of {known}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        word, present = mark.args
        if not present:
            missing(word, "not on this machine")


def missing(word: str, why: str) -> NoReturn:
    """Skips the test, or fails it if WARPFEED_REQUIRE lists `word`."""
    assert word in WORDS, f"tests/support/require.txt has no {word}"
    if word in REQUIRED:
        pytest.fail(f"WARPFEED_REQUIRE lists {word}, but it is missing: {why}", pytrace=False)
    pytest.skip(f"needs {word}: {why}", allow_module_level=True)


def need(module: str) -> Any:
    """Returns the module, or calls `missing` if its package is not installed."""
    package = module.partition(".")[0]
    try:
        result = importlib.import_module(module)
        # Without the real `datasets` package, Python imports the repository's `datasets` folder as
        # a namespace package.
        if result.__spec__ is None or result.__spec__.origin is not None:
            return result
        why = f"{module} is a folder"
    except ModuleNotFoundError as e:
        why = str(e)
    missing({"PIL": "pillow", "lmdb": "python-lmdb"}.get(package, package), why)


def needs(word: str, present: bool) -> pytest.MarkDecorator:
    """Marks a test that runs only if `present` is true."""
    return pytest.mark.needs(word, present)


def tell(text: str) -> None:
    """Prints a line past pytest's capture, so that it shows even if the test passes."""
    os.write(STDERR, f"\n{text}\n".encode())


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Discards everything that Python code prints to stdout."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


@pytest.fixture
def mini() -> str:
    """Returns the path of 64 synthetic images in 4 classes."""
    return str(MINI)


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the path of an LMDB of the `mini` folder, from `python -m warpfeed pack`."""
    out = tmp_path_factory.mktemp("packed") / "mini.lmdb"
    subprocess.run([sys.executable, "-m", "warpfeed", "pack", str(MINI), str(out)], check=True, capture_output=True)
    return str(out)


@pytest.fixture(scope="session")
def torch():  # type: ignore[no-untyped-def]
    return need("torch")


def run(code: str, *args: str, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *args],
        capture_output=True, text=True, timeout=timeout, env={**os.environ, **environment},
    )  # fmt: skip


def ran(code: str, *args: str, timeout: float = 120, **environment: str) -> str:
    """Like `run`, but returns the output, and fails if the exit code is not 0."""
    process = run(code, *args, timeout=timeout, **environment)
    assert process.returncode == 0, f"exit code {process.returncode}\n{process.stdout}\n{process.stderr}"
    return process.stdout


def batches_of(loader, count):  # type: ignore[no-untyped-def]
    """Yields `count` batches, from as many epochs as necessary."""
    while True:
        for batch in loader:
            yield batch
            count -= 1
            if count == 0:
                return


#: The epoch, the index and the ids of a batch, and the bytes of each field.
Content = tuple[int, int, list[int], dict[str, bytes]]


def contents(loader, epochs: int = 1) -> list[Content]:  # type: ignore[no-untyped-def]
    """Returns the contents of all batches of a loader that delivers NumPy arrays."""
    out = []
    for _ in range(epochs):
        for batch in loader:
            named = batch.items() if isinstance(batch, dict) else zip(["image", "label"], batch, strict=True)
            fields = {name: np.asarray(field).tobytes() for name, field in named}
            out.append((batch.epoch, batch.batch_index, batch.ids, fields))
    return out


def rust_batches(options: dict[str, object]) -> list[Content]:
    """Returns the batches that the Rust example `raw_batches` writes."""
    program = os.environ.get("WARPFEED_RAW_BATCHES")
    if not program:
        missing("raw-batches", "python/test.sh builds the example and sets WARPFEED_RAW_BATCHES")
    out = io.BytesIO(subprocess.run([program, json.dumps(options)], capture_output=True, check=True).stdout)
    batches = []
    while line := out.readline():
        head = json.loads(line)
        fields = {name: out.read(length) for name, length in head["fields"]}
        batches.append((head["epoch"], head["batch_index"], head["ids"], fields))
    return batches


class Images:
    """A Python source of BMP files in memory, each of a single color. `give` selects the type
    of the samples."""

    classes = ["even", "odd"]

    def __init__(self, count: int = 40, give: str = "pair") -> None:
        self.count, self.give = count, give

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> object:
        if index >= self.count:
            raise IndexError(index)
        if self.give == "bad" and index == 7:
            raise ValueError("the seventh is missing")
        image = bmp(8, 8, (index % 256, index * 7 % 256, index * 31 % 256))
        return {
            "bytes": image,
            "pair": (image, index % 2),
            "bad": (image, index % 2),
            "dict": {"bmp": memoryview(image), "label": index % 2, "key": f"no/{index}", "emb": bytes(8)},
            "unlabeled": {"bmp": image, "emb": bytes(8)},
            "decoded": [[0, 0, 0]],
        }[self.give]


def bmp(width: int, height: int, color: tuple[int, int, int]) -> bytes:
    """Returns a BMP file of a single color (red, green, blue)."""
    row = bytes(reversed(color)) * width
    row += bytes(-len(row) % 4)
    out = io.BytesIO()
    size = 54 + len(row) * height
    out.write(b"BM" + size.to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little"))
    out.write((40).to_bytes(4, "little") + width.to_bytes(4, "little") + height.to_bytes(4, "little"))
    out.write((1).to_bytes(2, "little") + (24).to_bytes(2, "little") + bytes(24) + row * height)
    return out.getvalue()
