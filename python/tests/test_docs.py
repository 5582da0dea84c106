"""Tests that each Python block of README.md, python/README.md and docs compiles and uses only names
and arguments that exist in warpfeed. Blocks marked `python run` also run, unchanged.
`test_documented.py` runs the other blocks as well, and checks for leaks."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import warpfeed
from conftest import MINI, ROOT
from documented import BLOCKS, PAGES, Block


class Instance(NamedTuple):
    """An instance of a known class."""

    of: type


class Checker(ast.NodeVisitor):
    """Checks how a block uses names from warpfeed, without running it."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.seen = 0

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            if name.name == "warpfeed" or name.name.startswith("warpfeed."):
                importlib.import_module(name.name)
                self.names[name.asname or "warpfeed"] = warpfeed

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module == "warpfeed":
            for name in node.names:
                self.names[name.asname or name.name] = member(warpfeed, name.name)
                self.seen += 1

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        self.bind(node.targets[0], node.value)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self.bind(item.optional_vars, item.context_expr)
        self.generic_visit(node)

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = self.value(value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        self.value(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        called = self.value(node.func)
        if called is None or isinstance(called, Instance):
            return
        self.seen += 1
        named = [word.arg for word in node.keywords if word.arg is not None]
        check_call(called, len(node.args), named, unpacked=len(named) < len(node.keywords))

    def value(self, node: ast.expr) -> Any:
        """Returns what an expression refers to: an object of warpfeed, an `Instance`, or `None` if
        this is unknown."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            if owner is None:
                return None
            return member(owner.of if isinstance(owner, Instance) else owner, node.attr)
        if isinstance(node, ast.Call):
            return result(self.value(node.func))
        return None


def member(owner: Any, name: str) -> Any:
    assert hasattr(owner, name) or name in self_attributes(owner), f"{owner.__name__} has no {name!r}"
    value = getattr(owner, name, None)
    return value if inspect.isclass(value) or inspect.ismodule(value) or callable(value) else None


def self_attributes(owner: Any) -> set[str]:
    """Returns every NAME that appears as `self.NAME` in the source of a class, including attributes
    that are set only in `__init__`."""
    try:
        return set(re.findall(r"self\.(\w+)", inspect.getsource(owner)))
    except (OSError, TypeError):
        return set()


def result(called: Any) -> Instance | None:
    if inspect.isclass(called):
        return Instance(called)
    returns = getattr(called, "__annotations__", {}).get("return")
    # Annotations are strings because of `from __future__ import annotations`.
    if isinstance(returns, str):
        returns = getattr(importlib.import_module(called.__module__), returns.partition("[")[0], None)
    return Instance(returns) if inspect.isclass(returns) and returns.__module__.startswith("warpfeed") else None


def check_call(called: Any, positional: int, named: list[str], unpacked: bool = False) -> None:
    try:
        parameters = list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):  # functions of the extension module
        return
    if parameters and parameters[0].name == "self" and not inspect.isclass(called):
        parameters = parameters[1:]
    by_name = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_KEYWORD and p.name == "options" for p in parameters):
        by_name |= set(inspect.signature(warpfeed.pack).parameters)  # `ray.pack` passes them to `warpfeed.pack`
    if any(p.kind is p.VAR_KEYWORD and p.name == "loaders" for p in parameters):
        by_name |= set(named)  # `metrics.observe` accepts loaders under any name
    name = called.__qualname__
    # The parameter `**unknown` of Loader does not accept other names: it only improves the error.
    assert set(named) <= by_name, f"{name} has no argument {sorted(set(named) - by_name)}"
    if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        assert positional <= len(by_place), f"{name} takes {len(by_place)} positional arguments, not {positional}"
    missing = {p.name for p in by_place[positional:] if p.default is p.empty} - set(named)
    assert unpacked or not missing, f"{name} needs {sorted(missing)}"


def test_pages_contain_code_blocks() -> None:
    assert len(BLOCKS) >= 20
    assert sum(block.run for block in BLOCKS) >= 8


@pytest.mark.parametrize("block", BLOCKS, ids=repr)
def test_every_block_compiles_and_its_names_and_arguments_exist(block: Block) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compile(block.code, str(block.page), "exec", flags)
    checker = Checker()
    checker.visit(compile(block.code, str(block.page), "exec", flags | ast.PyCF_ONLY_AST))
    assert checker.seen, "the block does not use warpfeed"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.run], ids=repr)
def test_a_block_that_is_marked_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(MINI, tmp_path / "datasets" / "mini")
    monkeypatch.chdir(tmp_path)
    exec(compile(block.code, str(block.page), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import warpfeed\nwarpfeed.Lodaer('train')", "has no 'Lodaer'"),
        ("from warpfeed import Augmnet", "has no 'Augmnet'"),
        ("import warpfeed\nwarpfeed.Loader('train', batchsize=4)", "has no argument ['batchsize']"),
        ("from warpfeed import Augment\nAugment.train(224).flipp(0.5)", "has no 'flipp'"),
        ("from warpfeed import Augment\nAugment.train(224).flip()", "needs ['probability']"),
        ("import warpfeed\nloader = warpfeed.Loader('train')\nloader.stats().sinec(1)", "has no 'sinec'"),
        ("from warpfeed import Loader\nwith Loader('train') as loader:\n    loader.verdcit()", "has no 'verdcit'"),
    ],
)
def test_the_check_finds_what_does_not_exist(code: str, message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        Checker().visit(ast.parse(code))


def test_every_link_of_a_page_leads_to_a_file_and_a_heading() -> None:
    pages = [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))]
    broken = []
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, heading = target.partition("#")
            if "://" in path:
                continue
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (heading and heading not in headings(file)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


def test_the_list_for_assistants_names_every_page() -> None:
    listed = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    named = re.findall(r"\(https://raw\.githubusercontent\.com/warpfeed/warpfeed/main/docs/([\w-]+\.md)\)", listed)
    assert sorted(named) == sorted(pages)


def headings(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as generated by GitHub."""
    results = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in results}


def test_the_page_on_statistics_lists_every_key(mini: str) -> None:
    text = (ROOT / "docs" / "where-does-the-time-go.md").read_text(encoding="utf-8")
    table = text[text.index("<!-- keys:stats -->") : text.index("<!-- /keys -->")]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    listed = [key for row in rows for key in re.findall("`([a-z_]+)`", row)]
    loader = warpfeed.Loader(mini, batch_size=16, augment=warpfeed.Augment.resize(8), output="numpy")
    next(iter(loader))
    stats = loader.stats()
    assert sorted(listed) == sorted(stats)
    assert set(stats["decode"]) == {"count", "seconds", "bytes", "p50_seconds", "p99_seconds", "histogram"}
    numbers = stats.flat()
    assert numbers["decode/count"] == stats["decode"]["count"] and numbers["batches"] == 1
    assert all(type(number) in (int, float) for number in numbers.values()) and "on_request" not in numbers
    named = set(re.findall("``([a-z_0-9]+)``", inspect.getdoc(warpfeed.Stats) or ""))
    assert named <= {*stats, *stats["decode"]}, "the docstring names keys that do not exist"
