"""Tests that tests/fuzz/run.py accepts the names of harnesses before and after its options."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT


@pytest.mark.parametrize("arguments", [["hdf5", "--table"], ["--table", "hdf5"]])
def test_harness_names_may_follow_options(tmp_path: Path, arguments: list[str]) -> None:
    binary = tmp_path / "binary"
    binary.write_text("#!/bin/sh\nprintf 'fuzz::%s: test\\n' hdf5_files mp4_files\n")
    binary.chmod(0o755)
    command = [sys.executable, str(ROOT / "tests/fuzz/run.py"), str(binary), "--keep", str(tmp_path), *arguments]
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "hdf5_files" in table and "mp4_files" not in table
