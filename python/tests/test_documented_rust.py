"""Promise: every Rust example of the pages runs for 200 batches, with one and with three workers.

`cargo test --doc` compiles the examples, and runs those that need no data set. Here all of them become one
program, which runs next to the data sets that they name. It takes a minute, so `WARPFEED_RUST_EXAMPLES=1` asks for
it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from conftest import ROOT, missing, tell
from documented import BATCHES, PAGES, Block
from test_documented import shop, stock

__all__ = ["shop"]

if not os.environ.get("WARPFEED_RUST_EXAMPLES"):
    missing("rust-examples", "WARPFEED_RUST_EXAMPLES is not set")

#: Numbers of pages that would only take time. An epoch has at least 8 batches of the 24 samples.
SMALLER = [
    (r"batch_size\(\d+\)", "batch_size(3)"),
    (r"eval\(256, 224\)", "eval(36, 32)"),
    (r"own_size\(640, 512\)", "own_size(32, 32)"),
    (r"\b(224|512|640|1024)\b", "32"),
    (r"\b1025\b", "33"),
    (r"Numbers::new\(Dtype::F32, 32\)", "Numbers::new(Dtype::F32, 512)"),
    (r"\[\], 32\)", "[], 512)"),
    (r"\bdino_views\(32, 96, 8\)", "dino_views(32, 16, 8)"),
    (r"\.\.90\b", "..EPOCHS"),
]  # fmt: skip

#: Examples that do not run here, by a part of their code, with the reason.
NOT_RUN = {
    "warpfeed_stores::": "fragments of a program with stores; `stores/tests` opens them",
    "cuda::stream": "needs a CUDA device",
    "joined.next()": "waits for other threads, which the example has not",
    "while let Some(uploads) = next_request()": "the network of the example has no request",
}


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(r"^```rust(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            yield Block(page, text.count("\n", 0, found.start(2)) + 1, "no_run" not in found[1], found[2])


BLOCKS = list(blocks())


def reason(block: Block) -> str | None:
    return next((why for part, why in NOT_RUN.items() if part in block.code), None)


RUN = [block for block in BLOCKS if reason(block) is None]


def repeated(code: str) -> str:
    """Loops over epoch 0 become loops over many epochs."""
    for found in reversed(list(re.finditer(r"for (\w+) in (\w+)\.epoch\(0\) \{", code))):
        end, depth = found.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        loop = f"for {found[1]} in {found[2]}.epoch(turn) {{{code[found.end() : end]}"
        code = f"{code[: found.start()]}for turn in 0..EPOCHS {{ {loop} }}{code[end:]}"
    return code


def module(number: int, block: Block) -> str:
    code = re.sub(r"^#( |$)", "", block.code, flags=re.MULTILINE)
    if not block.run:
        for pattern, small in SMALLER:
            code = re.sub(pattern, small, code)
    code = re.sub(r'Loader::new\(("[^"]*")\)', r"Loader::new(\1).workers(crate::workers())", repeated(code))
    code = code.replace("EPOCHS", "crate::EPOCHS")
    if "fn main()" in code:
        code = re.sub(r"^fn main\(\)", "pub fn main()", code, flags=re.MULTILINE)
    else:
        code = re.sub(r"^(Ok::.*)$", r"let _ = \1;", code, flags=re.MULTILINE)
        code = f"pub fn main() -> Result<(), Box<dyn std::error::Error>> {{\n{code}\nOk(())\n}}"
    return f"mod e{number} {{ // {block!r}\n{code}\n}}\n"


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of all examples: its arguments are the number of an example, and of workers."""
    folder = tmp_path_factory.mktemp("examples")
    arms = "\n".join(f'"{n}" => println!("{{:?}}", e{n}::main()),' for n in range(len(RUN)))
    modules = "".join(module(n, block) for n, block in enumerate(RUN))
    (folder / "examples.rs").write_text(
        f"const EPOCHS: u64 = {-(-BATCHES // 8)};\n"
        "fn workers() -> usize { std::env::args().nth(2).unwrap().parse().unwrap() }\n"
        "fn main() {\nmatch std::env::args().nth(1).unwrap().as_str() {\n"
        f"{arms}\n_ => unreachable!(),\n}}\n}}\n{modules}"
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    newest = lambda name: max((target / "deps").glob(f"lib{name}-*.rlib"), key=os.path.getmtime)  # noqa: E731
    externs = {"warpfeed": target / "libwarpfeed.rlib", **{name: newest(name) for name in ("serde_json", "ndarray")}}
    command = [
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
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "examples"


def test_every_example_runs_or_is_listed() -> None:
    assert len(BLOCKS) >= 35 and len(RUN) >= 25
    assert all(any(part in block.code for block in BLOCKS) for part in NOT_RUN)
    tell(f"Rust examples: {len(RUN)} run, {len(BLOCKS) - len(RUN)} do not")


@pytest.mark.parametrize("block", RUN, ids=repr)
def test_an_example_runs_for_many_batches(block: Block, examples: Path, shop: Path, tmp_path: Path) -> None:
    for workers in (1, 3):
        here = tmp_path / str(workers)
        here.mkdir()
        stock(shop, here, block.code)
        command = [examples, str(RUN.index(block)), str(workers)]
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and done.stdout.endswith("Ok(())\n"), done.stdout[-2000:] + done.stderr[-2000:]
