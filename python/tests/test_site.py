"""Tests that the documentation site shows the measured results, and that its build finds dead
links."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT

SITE = ROOT / "docs" / "site"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", SITE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    created = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(created)
    return created


@pytest.fixture
def plots(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])
    return module("plots")


@pytest.mark.parametrize("group", ["host", "device", "training", "requests"])
def test_a_plot_shows_only_medians_from_its_table(plots: ModuleType, group: str) -> None:
    record = json.loads((ROOT / "benches" / "figures" / f"{group}.json").read_text())
    drawn = plots.plot(group)
    shown = re.findall(r'class="value">([^<]*)<', drawn)
    page = (ROOT / "docs" / "performance.md").read_text()
    table = page.split(f"<!-- figures:{group} -->")[1].split("<!-- /figures -->")[0]
    medians = {plots.number(figure["median"], figure["unit"]) for figure in record["figures"].values()}
    assert shown and set(shown) <= medians
    assert all(f" {value} " in table or f" {value}," in table for value in shown)
    assert (
        max(
            float(width) for width in re.findall(r'width="([\d.]+)%" height="10" rx="2" class="(?:ours|theirs)"', drawn)
        )
        <= 100
    )


def test_the_plot_of_rivals_has_a_dot_per_ratio(plots: ModuleType) -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    table = page.split("<!-- figures:rivals -->")[1].split("<!-- /figures -->")[0].strip().splitlines()[2:]
    ratios = [[cell.strip() for cell in line.split("|")[3:5] if cell.strip()] for line in table]
    drawn = plots.plot("rivals")
    assert re.findall(r'class="value">([^<]*)<', drawn) == [", ".join(row) for row in ratios]
    assert drawn.count("<circle") == sum(map(len, ratios))
    # Dots to the left of the tick at 1 are ratios below 1.
    one = float(re.findall(r'x1="([\d.]+)%"[^>]*class="one"', drawn)[0])
    left = [x for x in re.findall(r'cx="([\d.]+)%"', drawn) if float(x) < one]
    assert len(left) == sum(float(ratio) < 1 for row in ratios for ratio in row)


def test_the_longest_bar_belongs_to_the_highest_median(plots: ModuleType) -> None:
    drawn = plots.bars("title", "images/s", [("a", "ours", [10, 30, 20]), ("b", "theirs", [40])])
    assert re.findall(r'width="([\d.]+)%" height="10" rx="2" class="(\w+)"', drawn)[1::2] == [
        ("50.00", "ours"),
        ("100.00", "theirs"),
    ]
    assert '<line x1="25.00%" x2="75.00%"' in drawn


def test_dead_links_and_anchors_of_the_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="b/#here"></a><a href="b/#gone"></a><img src="no.png"><a href="https://x.org/y">'
    )
    (tmp_path / "b" / "index.html").write_text('<h2 id="here"></h2><a href="../#top"></a><a href="..">up</a>')
    assert list(module("links").dead(tmp_path)) == [
        "b/index.html: broken link ../#top: no such anchor",
        "index.html: broken link b/#gone: no such anchor",
        "index.html: broken link no.png: no such file",
    ]
