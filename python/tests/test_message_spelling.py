"""Tests that no message in Python contains Rust spelling: converts every string in the sources that
may become a message, and fails if the conversion rules do not cover a new string."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import ROOT
from warpfeed import Augment, Loader
from warpfeed._warpfeed import in_python, options

#: Strings in the crate that users of the package never see.
UNSEEN = {
    # Internal errors of the crate.
    "workers decode images in groups and call `ImageField::write`",
    "timm({text:?}): {cause}",
    # In Python, the statistics show the Python call instead.
    "Loader::mixture({} datasets)",
}

SETTER = re.compile(r"pub fn ([a-z_]+)\((?:mut )?self\b[^{;]*?->\s*(?:Self|Loader|Result<Batches|Pack)", re.S)
#: Comments, characters, raw strings and strings, so that a comment inside a string is part of the
#: string.
TOKEN = re.compile(r"""//[^\n]*|'(?:\\[^']+|[^'\\\n])'|\br(#*)"(.*?)"\1|"((?:[^"\\]|\\.)*)\"""", re.S)


def source(path: str) -> str:
    """Returns the code of a file without its tests."""
    code = (ROOT / path).read_text()
    return re.split(r"#\[cfg\((?:all\()?test\b[^\n]*\n(?:\s*#\[[^\n]*\n)*\s*mod \w+ \{", code)[0]


def messages() -> set[str]:
    results = set()
    files = [path for folder in ("src", "sources/src", "stores/src", "python/src") for path in sorted((ROOT / folder).rglob("*.rs"))]
    for path in files:
        if path.name in ("tests.rs", "option_names.rs") or "sim" in path.parts:
            continue
        for _, raw, text in TOKEN.findall(source(str(path.relative_to(ROOT)))):
            text = raw or re.sub(r"\\\n\s*", "", text).replace('\\"', '"')
            # Text with a link is documentation in an attribute.
            if " " in text and "](" not in text:
                results.add(text)
    return results - UNSEEN


def setters() -> set[str]:
    folders = ("src/loader", "src/field", "src/pack", "src/transform", "sources/src")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.rs")]
    results = {name for path in files for name in SETTER.findall(path.read_text())}
    return results | {setter for setter, *_ in options()}


def test_setters_are_found() -> None:
    assert {"batch_size", "strict", "soft_labels", "host", "decode_on", "force"} <= setters()
    assert len(messages()) > 300


def test_no_message_of_the_crate_has_rust_spelling() -> None:
    call = re.compile(rf"(?<![\w:])\.?(?:{'|'.join(sorted(setters()))})\((?!s\))")
    path = re.compile(r"\b[A-Za-z_]\w*::\w+")
    spelt = {text: in_python(text) for text in messages()}
    rusty = [text for text in spelt.values() if call.search(text) or path.search(text)]
    assert not rusty, "\n".join(rusty)


def test_verdicts_use_python_spelling(mini: str, tmp_path: Path) -> None:
    with Loader(mini, augment=Augment.resize(8, 8), output="numpy") as loader:
        stats = loader.stats()
    numbers = {
        "workers": 4, "cores": 16, "seconds": 10.0, "batches": 100, "samples": 6400, "prepared_samples": 6400,
        "waited_seconds": 4.0, "epochs": 1, "slot_wait": {**stats["slot_wait"], "seconds": 0.0},
        "decode": {**stats["decode"], "count": 6400, "seconds": 30.0},
    }  # fmt: skip
    stats.update(numbers)
    advice = "num_workers=16, one per core, would be at most"
    verdict = stats.verdict()
    assert advice in verdict["text"] and verdict["text"] == str(verdict)
    stats.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert advice in page and "workers(16)" not in page


def test_values_use_python_spelling_and_locations_stay() -> None:
    for rust, python in [
        ("strict(true) makes it an error", "strict=True makes it an error"),
        (".pinned(false) needs less", "pin_memory=False needs less"),
        ("prefetch(3) fits, or batch_size(38358)", "prefetch=3 fits, or batch_size=38358"),
        ("add .soft_labels(classes, smoothing) or", "add soft_labels=(classes, smoothing) or"),
        ('use .drop_field("label") here', 'use drop_field=["label"] here'),
        ("no label, but balanced() requires one", "no label, but balanced=True requires one"),
        ("or use LastBatch::Keep", 'or use last_batch="keep"'),
        ("replay(9): from 1 to 3", "replay(9): from 1 to 3"),
        ("all (of them)", "all (of them)"),
    ]:
        assert in_python(rust) == python
