"""Collects the Python examples from the pages and docstrings, and runs an example for many
batches."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import faulthandler
import gc
import hashlib
import inspect
import os
import re
import sys
import textwrap
import time
import weakref
from pathlib import Path
from types import CodeType
from typing import Any, Iterator, NamedTuple

import conftest
import numpy as np
from conftest import ROOT
from warpfeed import Decoder, Loader

PAGES = [ROOT / "README.md", ROOT / "python" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted((ROOT / "python" / "warpfeed").glob("*.py"))

#: Batches per loader in an example, several times the number of slots.
BATCHES = int(os.environ.get("WARPFEED_EXAMPLE_BATCHES", "200"))
#: Seconds after which an example counts as hung. The process then prints the stacks of its threads
#: and exits.
LIMIT = 60 + BATCHES / 2


class Block(NamedTuple):
    page: Path
    line: int
    #: Whether the block is marked `python run`. `test_docs.py` runs such a block unchanged, in a
    #: folder that contains `datasets/mini`.
    run: bool
    code: str

    def __repr__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_docstring(self) -> bool:
        return self.page.suffix == ".py"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yields the fenced blocks of a page, or the indented blocks after `::` in the docstrings of a
    module."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".py":
        for match in re.finditer(r"^( *)(?:.*?)::\n\n((?:\1    .*\n|\n)+)", text, re.MULTILINE):
            line = text.count("\n", 0, match.start(2)) + 1
            yield Block(page, line, False, "\n" * (line - 1) + textwrap.dedent(match[2]).rstrip() + "\n")
        return
    for match in re.finditer(r"^```python( run)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, match.start(2)) + 1
        # The empty lines make errors show the line numbers of the page.
        yield Block(page, line, match[1] is not None, "\n" * (line - 1) + match[2])


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
DOCSTRINGS = [block for module in MODULES for block in blocks_of(module)]

#: Replacements for numbers that only make an example slow, and for values that depend on the
#: machine.
SMALLER = [
    (r"\bbatch_size=\d+", "batch_size=3"),
    (r"\bglobal_batch_size=\d+", "global_batch_size=3"),
    (r"\beval\(256, 224\)", "eval(36, 32)"),
    (r"(?<!\(\), )\b(224|512|640|1024)\b(?=[,)])", "32"),
    (r"\b1025\b", "33"),
    (r"\b< 90\b", "< 3"),
    (r"\brange\(90\)", "range(3)"),
    (r"\b, 90\)", ", 3)"),
    (r"max_epochs=90", "max_epochs=26"),
    (r"% 1000 == 999", "% 10 == 9"),
    (r"\bimage_transform_processes=8\b", "image_transform_processes=2"),
    (r"\bparts=64\b", "parts=2"),
    (r"\bPARTS = 64\b", "PARTS = 2"),
    (r"\bpart=\(3, 64\)", "part=(0, 1)"),
    (r"\{000\.\.099\}", "{000..001}"),
]  # fmt: skip

#: Replacements in blocks that are marked `python run`. They also keep the assertions of these
#: blocks true.
SMALLER_STILL = [
    (r"\b16\b", "2"),
    (r"\bbatch_size=(8|32)\b", "batch_size=2"),
    (r"\bbatch_size=64\b", "batch_size=4"),
    (r"train\((64|96)\)", "train(24)"),
    (r"\b64, 64\b", "24, 24"),
    (r"\b64, 64, 3\b", "24, 24, 3"),
    (r"eval\(72, 64\)", "eval(28, 24)"),
    (r"\(96, 128\)", "(24, 32)"),
]  # fmt: skip

#: Assertions about the number of batches or samples of one epoch. They hold only if the examples
#: run unchanged.
COUNTED = [
    "assert trained ==",
    "assert train(loader",
    "assert sum(1 for _ in loader)",
    'assert numbers["samples"] == 64',
    "assert len(loader) == 12",
]


def made_small(block: Block) -> str:
    """Returns the block with smaller numbers, and without the assertions in `COUNTED`."""
    code = block.code
    for pattern, small in SMALLER_STILL if block.run else SMALLER:
        code = re.sub(pattern, small, code)
    lines = code.split("\n")
    return "\n".join(
        re.sub(r"\S.*", "pass", line) if line.strip().startswith(tuple(COUNTED)) else line for line in lines
    )


class Prepared(ast.NodeTransformer):
    """Rewrites the loaders of a program to use `workers` threads, a timeout, and small images and
    batches."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.has_batch_sizes = False

    def visit_Module(self, node: ast.Module) -> ast.Module:
        self.has_batch_sizes = "global_batch_sizes=" in ast.unparse(node)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        arguments = {word.arg for word in node.keywords}
        if called in ("Loader", "DataModule", "Decoder"):
            values: dict[str, ast.expr] = {"num_workers": ast.Constant(self.workers)}
            if called != "Decoder":
                values["held_batches_timeout"] = ast.Constant(20)
            if called == "Loader" and not self.has_batch_sizes and not {None, "global_batch_size"} & arguments:
                values["batch_size"] = ast.Constant(3)
            # Images of the default size would be slow.
            if (
                called != "DataModule"
                and not {None, "views"} & arguments
                and not re.search("Tokens|'image'", ast.unparse(node))
            ):
                values["augment"] = ast.Name("SMALL", ast.Load())
            node.keywords += [ast.keyword(name, value) for name, value in values.items() if name not in arguments]
        return node


def program(block: Block, workers: int, code: str | None = None) -> CodeType:
    """Compiles the block, with `code` in place of its text."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(block.code if code is None else code, str(block.page), "exec", flags | ast.PyCF_ONLY_AST)
    return compile(ast.fix_missing_locations(Prepared(workers).visit(tree)), str(block.page), "exec", flags)


def hashed(value: Any, into: Any) -> None:
    if isinstance(value, dict):
        for name in value:
            into.update(repr(name).encode())
            hashed(value[name], into)
    elif isinstance(value, (list, tuple)):
        into.update(f"{type(value).__name__} {len(value)}".encode())
        for one in value:
            hashed(one, into)
    elif type(value).__module__.partition(".")[0] == "torch":
        into.update(f"{value.dtype} {tuple(value.shape)} {value.stride()}".encode())
        flat = value.detach().cpu().contiguous().reshape(-1)
        into.update(flat.view(sys.modules["torch"].uint8).numpy().tobytes() if flat.numel() else b"")
    elif hasattr(value, "__array__") or isinstance(value, np.generic):
        array = np.asarray(value)
        into.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    else:
        into.update(repr(value).encode())


def digest(batch: Any) -> str:
    into = hashlib.blake2b(digest_size=12)
    facts = [getattr(batch, name, None) for name in ("epoch", "batch_index", "ids", "valid")]
    hashed([*facts, batch], into)
    return into.hexdigest()


class Driver:
    """Makes loops over loaders run until each loader has delivered at least `BATCHES` batches.

    If `again` is set, a loop repeats its epoch instead of continuing with the next epoch. Loops
    with a body that depends on the epoch need this.
    """

    def __init__(self, again: bool) -> None:
        self.again = again
        #: One list per loader and decoder, in the order of their first batches.
        self.digests: list[list[str]] = []
        self._of: weakref.WeakKeyDictionary[Any, list[str]] = weakref.WeakKeyDictionary()

    def seen(self, of: Loader | Decoder) -> list[str]:
        if of not in self._of:
            self._of[of] = []
            self.digests.append(self._of[of])
        return self._of[of]


class Recorder:
    """A loader's iterator that records the batches. It continues after the end of an epoch until
    the loader has delivered at least `BATCHES` batches."""

    def __init__(self, drive: Driver, loader: Loader, begun: Any) -> None:
        self.drive, self.loader, self.inner = drive, loader, begun
        self.at, self.delivered = loader.epoch, 0

    def __iter__(self) -> Recorder:
        return self

    def __len__(self) -> int:
        return len(self.inner)

    def __next__(self) -> Any:
        seen = self.drive.seen(self.loader)
        if not self.delivered:
            # The program may still set the epoch before it requests the first batch.
            self.at = self.loader.epoch
        try:
            batch = next(self.inner)
        except StopIteration:
            if len(seen) >= BATCHES or not self.delivered:
                raise
            if self.drive.again:
                self.loader.set_epoch(self.at)
            self.inner = ITER(self.loader)
            batch = next(self.inner)
        self.delivered += 1
        seen.append(digest(batch))
        return batch


ITER, EPOCH_FROM = Loader.__iter__, Loader.epoch_from


@contextlib.contextmanager
def driving(again: bool) -> Iterator[Driver]:
    drive = Driver(again)
    Loader.__iter__ = lambda self: Recorder(drive, self, ITER(self))  # type: ignore[method-assign, assignment, return-value]
    Loader.epoch_from = lambda self, *at: Recorder(drive, self, EPOCH_FROM(self, *at))  # type: ignore[method-assign, assignment, return-value]
    try:
        yield drive
    finally:
        Loader.__iter__, Loader.epoch_from = ITER, EPOCH_FROM  # type: ignore[method-assign]


def run(code: CodeType, names: dict[str, Any], again: bool, images: list[bytes]) -> list[list[str]]:
    """Runs a program. Then runs further epochs of each loader in a global variable, until the
    loader has delivered at least `BATCHES` batches, and sends `BATCHES` requests to each decoder.

    Returns:
        The digests of each loader's batches and of each decoder's responses.
    """
    with driving(again) as drive:
        awaited = eval(code, names)
        if inspect.iscoroutine(awaited):
            asyncio.run(awaited)
        for value in list(names.values()):
            if isinstance(value, Loader):
                seen = drive.seen(value)
                while len(seen) < BATCHES:
                    before = len(seen)
                    for _batch in value:
                        del _batch
                    assert len(seen) > before, "an epoch without batches"
                value.close()
            elif isinstance(value, Decoder):
                drive.seen(value).extend(digest(value.decode(images[:2]).images) for _ in range(BATCHES))
                value.close()
        # Functions of the example hold references to its global variables.
        names.clear()
    return drive.digests


class Left(NamedTuple):
    """Resources of the process that a program may leak."""

    threads: int
    descriptors: int

    @classmethod
    def now(cls) -> Left:
        names = []
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                names.append((task / "comm").read_text())
        return cls(sum(name.startswith("warpfeed") for name in names), len(os.listdir("/proc/self/fd")))

    @classmethod
    def at_most(cls, before: Left) -> Left:
        """Waits up to two seconds until the use of resources drops to `before`, because threads
        need time to end. Returns the resources in use."""
        for _ in range(40):
            result = cls.now()
            if result.threads <= before.threads and result.descriptors <= before.descriptors:
                break
            time.sleep(0.05)
        return result


def resident() -> int:
    """Returns the resident memory of the process without shared pages, in bytes."""
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disables the garbage collector. If the program hangs, the process prints the stacks of its
    threads and exits."""
    gc.collect()
    gc.disable()
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=conftest.STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        gc.enable()
