"""Runs the Rust examples of the Markdown pages and of `examples`, and the `no_run` examples of
`src`, except those in `NOT_RUN`. An example must deliver the same batches with one worker and with
three. Examples with a loop over batches deliver at least 200 batches, except those in `SHORT`.

`cargo test --doc` only compiles `no_run` examples. This test compiles all examples into one
program, which runs in a folder with the datasets of the examples. This takes a minute, so the test
runs only with `WARPFEED_RUST_EXAMPLES=1`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Iterator

import pytest
from conftest import ROOT, missing, tell
from documented import BATCHES, PAGES, Block
from test_documented import shop, stock

__all__ = ["shop"]

if not os.environ.get("WARPFEED_RUST_EXAMPLES"):
    missing("rust-examples", "WARPFEED_RUST_EXAMPLES is not set")

#: Replacements of patterns in the examples, for speed and for the classes and files of the small
#: datasets. An epoch has at least 8 batches: 24 samples in batches of 3.
SMALLER = [
    (r"batch_size\(\d+\)", "batch_size(3)"),
    (r"\.workers\(\d+\)", ".workers(crate::workers())"),
    (r"eval\(256, 224\)", "eval(36, 32)"),
    (r"pad_to\(640, 512\)", "pad_to(32, 32)"),
    (r"\b(224|640|1024)\b", "32"),
    (r"(?<!\[\], )\b512\b", "32"),
    (r"\b1025\b", "33"),
    (r"\bdino_views\(32, 96, 8\)", "dino_views(32, 16, 8)"),
    (r"\.\.90\b", "..crate::EPOCHS"),
    (r"0\.\.50_000\b", "0..24"),
    (r'MultiHot::new\(\["cat", "dog", "indoors"\]\)', 'MultiHot::new(["indoors", "outdoors", "sleeping"])'),
    (r'\["cat", "dog", "fox"\]', '["banded-ring", "dotted-triangle", "plain-disc", "striped-cross"]'),
    (r"% 1000 == 999", "% 10 == 9"),
    (r"\{000\.\.099\}", "{000..001}"),
]  # fmt: skip

#: The programs in `examples` check their own output and therefore need fewer changes.
SMALLER_FILES = [
    (r"global_batch_size\(16\)", "global_batch_size(3)"),
    (r"from_millis\(50\)", "from_millis(0)"),
    (r"const EPOCHS: u64 = 5;", "const EPOCHS: u64 = crate::EPOCHS;"),
]

#: Arguments of the programs in `examples`.
ARGUMENTS = {
    "custom_transform": ["train"],
    "inspect_batch": ["train"],
    "pack_lmdb": ["train", "out.lmdb"],
    "raw_batches": ['{"data": "train", "batch_size": 3, "side": 32, "shuffle": 1, "epochs": 25}'],
}

#: Reasons for not running an example that contains the key.
NOT_RUN = {
    "warpfeed_stores::": "fragments of a program with stores; `stores/tests` opens them",
    "cuda::stream": "needs a CUDA device",
    "cuda::borrowed_stream": "needs a CUDA device",
    "joined.next()": "waits for other threads, which the example does not have",
    "while let Some(uploads) = next_request()": "the example receives no request",
    "Merge::new": "merges parts that other processes pack; `tests/pack/parts.rs` tests this",
}

#: Reasons why an example that contains the key delivers fewer batches.
SHORT = {
    "struct Waveform": "checks one epoch",
    "struct Second": "compares two batches",
    "ThereAndBack(64)": "looks at one batch",
    "in host memory, because there is no GPU": "answers requests",
    "replay(2)": "uses the same two batches repeatedly",
    ".epoch(0).next()": "shows one batch",
}


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```rust(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            yield Block(page, text.count("\n", 0, match.start(2)) + 1, "no_run" not in match[1], match[2])


def docs_of_items() -> Iterator[Block]:
    """Yields the examples in `src` that `cargo test --doc` compiles but does not run."""
    for file in sorted((ROOT / "src").rglob("*.rs")):
        text = file.read_text(encoding="utf-8")
        for match in re.finditer(r"^( *//[/!]) ?```no_run\n((?:\1.*\n)*?)\1 ?```$", text, re.MULTILINE):
            code = re.sub(r"^ *//[/!] ?", "", match[2], flags=re.MULTILINE)
            yield Block(file, text.count("\n", 0, match.start(2)) + 1, False, code)


def files() -> Iterator[Block]:
    for file in sorted((ROOT / "examples").glob("*.rs")):
        yield Block(file, 1, False, file.read_text(encoding="utf-8"))


KINDS = {"pages": [*blocks()], "src": [*docs_of_items()], "examples": [*files()]}
BLOCKS = [block for kind in KINDS.values() for block in kind]


def reason_for(reasons: dict[str, str], block: Block) -> str | None:
    return next((reason for part, reason in reasons.items() if part in block.code), None)


def is_file(block: Block) -> bool:
    return block in KINDS["examples"]


def kind_of(block: Block) -> str:
    return next(kind for kind, of in KINDS.items() if block in of)


#: Programs in `examples` report a missing device, so they always run.
RUN = [block for block in BLOCKS if is_file(block) or reason_for(NOT_RUN, block) is None]

LOADER = re.compile(r"^ *let (?:mut )?(\w+) = [^;]*Loader::\w+\([^;]*;$", re.MULTILINE)
OPENED = re.compile(r"^ *let (?:mut )?(\w+) = [^;]*\.host\(\)\?;", re.MULTILINE)


def repeated(code: str) -> str:
    """Replaces loops over epoch 0 with loops over many epochs."""
    for match in reversed(list(re.finditer(r"for (\w+) in (\w+)\.epoch\(0\) \{", code))):
        end, depth = match.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        loop = f"for {match[1]} in {match[2]}.epoch(turn) {{{code[match.end() : end]}"
        code = f"{code[: match.start()]}for turn in crate::turns() {{ {loop} }}{code[end:]}"
    return code


def driven(code: str, is_whole: bool) -> str:
    """Changes the code to record its batches. If it only opens loaders, adds loops over them."""
    opened, loaders = ([], []) if is_whole else (OPENED.findall(code), LOADER.findall(code))
    code = code.replace("for epoch in 0..2 {", "for epoch in 0..2 * crate::EPOCHS {")
    code = re.sub(r"\b(\w+)\.epoch\((\w+)\)(?!;|\.)", r"crate::seen(\1.epoch(\2))", repeated(code))
    code = re.sub(r"\b(\w+)\.epoch\(epoch\)\.", r"crate::seen(\1.epoch(epoch)).", code)
    code = code.replace("= epoch.next()", "= crate::noted(epoch.next())")
    code = re.sub(r"for (\w+) in loader \{", r"for \1 in crate::passes(loader) {", code)
    extra = [f"crate::epochs({name})?;" for name in opened if not re.search(rf"\b{name}\.(epoch|replay)", code)]
    moved = r"\.host|\.cuda|passes\(|source::|\.batch_size"
    if not opened and not re.search(moved, code):
        extra += [f"crate::consume({name})?;" for name in dict.fromkeys(loaders)]
    if extra:
        offset = code.rfind("\n# Ok" if "\n# Ok" in code else "\nOk")
        offset = len(code) if offset < 0 else offset
        code = f"{code[:offset]}\n{' '.join(extra)}\n{code[offset:]}"
    small = "" if "batch_size(" in code or "Decoder" in code else ".batch_size(3)"
    return code.replace(".host()", f"{small}.workers(crate::workers()).host()")


def module(number: int, block: Block) -> str:
    if is_file(block):
        code = block.code
        for pattern, small in SMALLER_FILES:
            code = re.sub(pattern, small, code)
        code = code.replace('include_str!("', f'include_str!("{ROOT}/examples/')
        # Programs that compare worker counts set them themselves, and device batches are not
        # recorded.
        if ".workers(" in code:
            code = code.replace("in loader {", "in crate::passes(loader) {")
        elif "cuda::available" not in code:
            code = driven(code, True)
        return f"mod e{number} {{\n{re.sub(r'^fn main', 'pub fn main', code, flags=re.MULTILINE)}\n}}\n"
    code = driven(block.code, block.run or re.search(r"^fn main\(\)", block.code, re.MULTILINE) is not None)
    code = re.sub(r"^#( |$)", "", code, flags=re.MULTILINE)
    if not block.run:
        for pattern, small in SMALLER:
            code = re.sub(pattern, small, code)
    if "fn main()" in code:
        code = re.sub(r"^fn main\(\)", "pub fn main()", code, flags=re.MULTILINE)
    else:
        code = re.sub(r"^(Ok::.*)$", r"let _ = \1;", code, flags=re.MULTILINE)
        code = f"pub fn main() -> Result<(), Box<dyn std::error::Error>> {{\n{code}\nOk(())\n}}"
    return f"mod e{number} {{ // {block!r}\n{code}\n}}\n"


#: Records the batches of the examples, and repeats epochs until there are `BATCHES` batches.
PROGRAM = """
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use warpfeed::{Batches, HostBatch, Loader, Result};

const BATCHES: u64 = @BATCHES@;
const EPOCHS: u64 = BATCHES.div_ceil(8);
static SEEN: Mutex<(u64, Option<DefaultHasher>)> = Mutex::new((0, None));

fn workers() -> usize {
    std::env::var("EXAMPLE_WORKERS").unwrap().parse().unwrap()
}

fn noted(batch: Option<Result<HostBatch>>) -> Option<Result<HostBatch>> {
    if let Some(Ok(batch)) = &batch {
        let mut seen = SEEN.lock().unwrap();
        seen.0 += 1;
        let hash = seen.1.get_or_insert_default();
        (batch.epoch(), batch.batch_index(), batch.ids().collect::<Vec<_>>(), batch.sample_keys().collect::<Vec<_>>()).hash(hash);
        for field in batch.fields() {
            (&field.name, batch.field(&field.name).map(|view| view.bytes().to_vec())).hash(hash);
        }
    }
    batch
}

fn seen(epoch: impl Iterator<Item = Result<HostBatch>>) -> impl Iterator<Item = Result<HostBatch>> {
    epoch.map(|batch| noted(Some(batch)).unwrap())
}

fn turns() -> impl Iterator<Item = u64> {
    let until = SEEN.lock().unwrap().0 + BATCHES;
    (0..).take_while(move |_| SEEN.lock().unwrap().0 < until)
}

fn passes(loader: Loader) -> impl Iterator<Item = Result<HostBatch>> {
    turns().flat_map(move |_| seen(loader.clone().into_iter()))
}

fn epochs(mut batches: Batches<HostBatch>) -> Result<()> {
    turns().try_for_each(|turn| seen(batches.epoch(turn)).try_for_each(|batch| batch.map(drop)))
}

fn consume(loader: Loader) -> Result<()> {
    epochs(loader.augment(warpfeed::Augment::eval(36, 32)).batch_size(3).workers(workers()).host()?)
}

fn main() {
    let output = match &*std::env::var("EXAMPLE").unwrap() {
@ARMS@
        _ => unreachable!(),
    };
    let seen = SEEN.lock().unwrap();
    eprintln!("{} batches {:016x}\\n{output}", seen.0, seen.1.clone().unwrap_or_default().finish());
}
"""


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds a program with all examples. Environment variables select an example and the number of
    workers."""
    folder = tmp_path_factory.mktemp("examples")
    arms = "\n".join(f'"{n}" => format!("{{:?}}", e{n}::main()),' for n in range(len(RUN)))
    modules = "".join(module(n, block) for n, block in enumerate(RUN))
    text = PROGRAM.replace("@BATCHES@", str(BATCHES)).replace("@ARMS@", arms)
    (folder / "examples.rs").write_text(text + modules)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    # The folder may also contain older builds, so cargo reports the artifact paths.
    build = ["cargo", "build", "--quiet", "--workspace", "--all-features", "--lib", "--message-format=json"]
    listed = subprocess.run(build, capture_output=True, text=True, cwd=ROOT, check=True).stdout.splitlines()
    built = [json.loads(line) for line in listed if '"compiler-artifact"' in line]
    externs = {
        one["target"]["name"]: name
        for one in built
        for name in one["filenames"]
        if one["target"]["name"] in ("warpfeed", "serde_json", "ndarray", "warpfeed_synth") and name.endswith(".rlib")
    }
    command: list[str | Path] = [
        "rustc",
        "--edition",
        "2024",
        "-Awarnings",
        "-o",
        folder / "examples",
        folder / "examples.rs",
        "-L",
        target / "deps",
    ]
    for name, path in externs.items():
        command += ["--extern", f"{name}={path}"]
    variables = {**os.environ, "CARGO_MANIFEST_DIR": str(ROOT / "examples")}
    process = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert process.returncode == 0, process.stderr
    return folder / "examples"


COVERED: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def covered() -> Iterator[None]:
    yield
    tell(f"Rust examples: {', '.join(f'{count} {what}' for what, count in sorted(COVERED.items()))}")


def test_every_example_runs_or_is_listed_and_no_list_is_stale() -> None:
    assert len(KINDS["pages"]) >= 35 and len(KINDS["src"]) >= 40 and len(KINDS["examples"]) >= 10
    assert len(RUN) >= 75
    for part in [*NOT_RUN, *SHORT]:
        assert any(part in block.code for block in BLOCKS), f"no example has {part!r}"
    assert set(ARGUMENTS) <= {block.page.stem for block in KINDS["examples"]}
    for kind, of in KINDS.items():
        COVERED[f"of {kind} that do not run"] = sum(block not in RUN for block in of)


@pytest.mark.parametrize("block", RUN, ids=repr)
def test_an_example_has_the_same_batches_for_any_workers(
    block: Block, examples: Path, shop: Path, tmp_path: Path
) -> None:
    arguments = ARGUMENTS.get(block.page.stem, []) if is_file(block) else []
    output = []
    for workers in (1, 3):
        folder = tmp_path / str(workers)
        folder.mkdir()
        code = block.code if block.run else re.sub(r"\{000\.\.099\}", "000.tar\", \"train-001", block.code)
        stock(shop, folder, code + "".join(f'"{word}"' for word in arguments) + ('"train"' if arguments else ""))
        variables = {"EXAMPLE": str(RUN.index(block)), "EXAMPLE_WORKERS": str(workers), "TMPDIR": str(folder)}
        process = subprocess.run(
            [examples, *arguments], cwd=folder, capture_output=True, text=True, errors="replace", timeout=300,
            env={**os.environ, **variables},
        )  # fmt: skip
        lines = process.stderr.splitlines()
        assert process.returncode == 0 and lines[-1] in ("Ok(())", "()", "ExitCode(unix_exit_status(0))"), (
            process.stdout[-2000:] + process.stderr[-2000:]
        )
        if "skipped: " in process.stdout:
            missing("cuda", "the example needs a device")
        output.append(lines[-2])
    assert output[0] == output[1], "the batches depend on the number of workers"
    count = int(output[0].split()[0])
    loops = re.search(r"\.epoch\(|replay\(|in loader \{", block.code)
    assert count >= BATCHES or not loops or reason_for(SHORT, block), f"{count} batches"
    COVERED.update({f"of {kind_of(block)} run": 1, f"of {kind_of(block)} give batches": count > 0, "batches": 2 * count})
