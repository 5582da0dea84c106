"""Tests that all packages have the same version, and that one command changes it everywhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT


def version(root: Path, *arguments: str) -> tuple[int, str]:
    command: list[str | Path] = [sys.executable, root / ".ci" / "version", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Returns a copy of the repository's manifests and lock files."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout
    for name in [".ci/version", "CHANGELOG.md", *listed.splitlines()]:
        if Path(name).name in ("Cargo.toml", "Cargo.lock", "pyproject.toml", "version", "CHANGELOG.md"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_all_packages_have_one_version() -> None:
    assert version(ROOT)[0] == 0, version(ROOT)[1]


def test_one_command_changes_every_version(copied: Path) -> None:
    assert version(copied, "7.8.9-rc.1") == (0, "every package has the version 7.8.9-rc.1\n")
    for name in ("Cargo.toml", "cli/Cargo.toml", "Cargo.lock", "adaptors/tch/Cargo.toml", "adaptors/tch/Cargo.lock"):
        assert "7.8.9-rc.1" in (copied / name).read_text()
    old, new = ((root / "Cargo.lock").read_text().splitlines() for root in (ROOT, copied))
    changed = [before for before, after in zip(old, new, strict=True) if before != after]
    # The lock file must have one changed line for each package of the workspace.
    assert len(changed) == 10


@pytest.mark.parametrize("name", ["stores/Cargo.toml", "adaptors/burn/Cargo.toml", "adaptors/burn/Cargo.lock"])
def test_a_different_version_is_found_with_its_location(copied: Path, name: str) -> None:
    assert version(copied, "7.8.9")[0] == 0
    text = (copied / name).read_text()
    (copied / name).write_text(text.replace("7.8.9", "7.8.8", 1))
    code, output = version(copied)
    assert code == 1 and f"{name}:" in output and "version 7.8.8, but the workspace has 7.8.9" in output


def test_a_different_minimum_rust_version_is_found(copied: Path) -> None:
    text = (copied / "adaptors/candle/Cargo.toml").read_text()
    (copied / "adaptors/candle/Cargo.toml").write_text(text.replace('rust-version = "', 'rust-version = "9', 1))
    code, output = version(copied)
    assert code == 1 and "adaptors/candle/Cargo.toml:" in output and "rust-version" in output


def test_a_release_needs_its_tag_and_changelog_section(copied: Path) -> None:
    assert version(copied, "7.8.9")[0] == 0
    code, output = version(copied, "--released", "v7.8.8")
    assert code == 1 and "the tag is v7.8.8" in output and "no section `## [7.8.9]" in output
    with (copied / "CHANGELOG.md").open("a") as log:
        log.write("\n## [7.8.9] - 2030-01-31\n")
    assert version(copied, "--released", "v7.8.9")[0] == 0
