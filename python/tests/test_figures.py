"""Tests that a table of figures is marked as outdated if its code has changed, and that the mark
does not make the check of the tables fail.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benches" / "figures"), *sys.path])
    return importlib.import_module("group")


def commit(repository: Path, name: str, line: str = "let a = 1;") -> str:
    file = repository / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text((file.read_text() if file.exists() else "") + line + "\n")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", name]):
        subprocess.run([*git, *command], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def test_a_figure_older_than_its_code_is_found(
    group: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = commit(tmp_path, "src/decode/a.rs")
    figures = tmp_path / "benches" / "figures"
    monkeypatch.setattr(group, "HERE", figures)
    commit(tmp_path, "benches/figures/device.json")
    assert group.changed("device", measured) == []
    commit(tmp_path, "src/decode/a.rs", "    // A comment.")
    commit(tmp_path, "src/device/README.md", "A page.")
    assert group.changed("device", measured) == []
    commit(tmp_path, "src/device/a.rs")
    assert group.changed("device", measured) == ["src/device"]
    assert group.changed("device", measured[:7] + "+") == ["src/device"]
    assert group.changed("host", measured) == []
    assert group.changed("device", "0" * 40) is None


def test_a_missing_mark_does_not_fail_the_check(group: ModuleType) -> None:
    table = "| a |\n\n- Figures: medians.\n"
    marked = f"{table}- {group.OLDER} measured before the last change to `jpeg/src`,\n  `src/decode`.\n- Measured\n"
    assert group.MARK.sub("", marked) == group.MARK.sub("", f"{table}- Measured\n")
    assert group.MARK.sub("", marked.replace("medians", "means")) != group.MARK.sub("", f"{table}- Measured\n")
    assert group.MARK.sub("", f"| a |\n\n- {group.OLDER} row 1.\n<!-- /figures -->") == "| a |\n<!-- /figures -->"
    assert group.MARK.sub("", f"| a |\n\n{group.OLDER} row 1.\n<!-- /figures -->") == "| a |\n<!-- /figures -->"


@pytest.mark.parametrize("name", ["host", "device", "training", "requests"])
def test_each_path_of_a_group_exists(group: ModuleType, name: str) -> None:
    assert all((ROOT / path).is_dir() for path in group.PATHS[name])
