"""Promise: no message has Rust spelling. These tests convert every text of the source of the crate, of the
stores and of the package that may become a message, so a new text that is not covered fails."""

from __future__ import annotations

import re

from conftest import ROOT
from warpfeed._warpfeed import in_python, options

#: Texts of the crate that no user of the package gets.
UNSEEN = {
    # A mistake in the crate itself.
    "workers decode images in groups and call `ImageField::write`",
    # `timm` is called alike in Python.
    "timm({text:?}): {cause}",
    # Statistics of the package show its own call.
    "Loader::mixture({} datasets)",
}

SETTER = re.compile(r"pub fn ([a-z_]+)\((?:mut )?self\b[^{;]*?->\s*(?:Self|Loader|Result<Batches|Pack)", re.S)
#: Comments, characters, raw texts and texts. A comment inside a text is a text.
TOKEN = re.compile(r"""//[^\n]*|'(?:\\[^']+|[^'\\\n])'|\br(#*)"(.*?)"\1|"((?:[^"\\]|\\.)*)\"""", re.S)


def source(path: str) -> str:
    """The code of a file without its tests."""
    code = (ROOT / path).read_text()
    return re.split(r"#\[cfg\((?:all\()?test\b[^\n]*\n(?:\s*#\[[^\n]*\n)*\s*mod \w+ \{", code)[0]


def messages() -> set[str]:
    found = set()
    files = [path for folder in ("src", "sources/src", "stores/src", "python/src") for path in sorted((ROOT / folder).rglob("*.rs"))]
    for path in files:
        # `words.rs` has the texts that are replaced.
        if path.name in ("tests.rs", "words.rs") or "sim" in path.parts:
            continue
        for _, raw, text in TOKEN.findall(source(str(path.relative_to(ROOT)))):
            text = raw or re.sub(r"\\\n\s*", "", text).replace('\\"', '"')
            # Links occur only in documentation, in attributes.
            if " " in text and "](" not in text:
                found.add(text)
    return found - UNSEEN


def setters() -> set[str]:
    folders = ("src/loader", "src/field", "src/pack", "src/transform", "sources/src")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.rs")]
    found = {name for path in files for name in SETTER.findall(path.read_text())}
    return found | {setter for setter, *_ in options()}


def test_setters_are_found() -> None:
    assert {"batch_size", "unlabeled", "soft_labels", "host", "decode_on", "force"} <= setters()
    assert len(messages()) > 300


def test_no_message_of_the_crate_has_rust_spelling() -> None:
    call = re.compile(rf"(?<![\w:])\.?(?:{'|'.join(sorted(setters()))})\((?!s\))")
    path = re.compile(r"\b[A-Za-z_]\w*::\w+")
    spelt = {text: in_python(text) for text in messages()}
    rusty = [text for text in spelt.values() if call.search(text) or path.search(text)]
    assert not rusty, "\n".join(rusty)


def test_values_are_those_of_python_and_places_stay() -> None:
    for rust, python in [
        ("unlabeled(true) makes it -1", "unlabeled=True makes it -1"),
        (".pinned(false) needs less", "pin_memory=False needs less"),
        ("prefetch(3) fits, or batch_size(38358)", "prefetch=3 fits, or batch_size=38358"),
        ("add .soft_labels(classes, smoothing) or", "add soft_labels=(classes, smoothing) or"),
        ('use .without("label") here', 'use without=["label"] here'),
        ("no label, which balanced() needs", "no label, which balanced=True needs"),
        ("or use LastBatch::Keep", 'or use last_batch="keep"'),
        ("replay(9): from 1 to 3", "replay(9): from 1 to 3"),
        ("all (of them)", "all (of them)"),
    ]:
        assert in_python(rust) == python
