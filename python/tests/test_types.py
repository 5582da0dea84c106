"""Tests that the stubs match the extension module, that the package passes mypy's strict checks,
and that mypy accepts correct user code and reports the mistakes in incorrect user code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import warpfeed
from conftest import need

need("mypy")

USER = """
import pathlib

import numpy as np
import warpfeed
from warpfeed import Augment, Boxes, Loader, Mask, NdArray, TableOptions

loader = Loader(
    [("a", 0.5), (warpfeed.Coco("b.json", images="c"), 0.5)], batch_size=2, classes=["x"],
    table=TableOptions(gather={"a": ["b"]}), augment=Augment.letterbox(64, 64).fill(1, 2, 3),
    fields={"boxes": Boxes(3, columns={"class": "i64"}), "m": Mask("u8")},
    sampler=lambda epoch: range(epoch),
)
for batch in loader:
    print(batch)
with warpfeed.span("step"):
    state: dict[str, object] = loader.state_dict()
loader.load_state_dict(state)
reveal_type(loader.stats().since(loader.stats()).verdict())
reveal_type(warpfeed.split("x", [0.5, 0.5], seed=1, stratify=True))
Loader("a", device="cuda:1", dtype=np.float32, normalize=([0.5] * 3, (0.5, 0.5, 0.5)), trace=("t", (1, 1, 3, 1)))
Loader("a", device=0, dtype=np.dtype("float32"), normalize="imagenet", trace=pathlib.Path("t"))
wrong: int = loader.stats()
loader.epoch_from("one", 2)
Loader("a", bach_size=2)
warpfeed.Decoder(decode_on="tpu")
Loader("a", device=1.5)
warpfeed.Decoder(dtype=32)
Loader("a", normalize="ImageNet")
NdArray(8)
"""

ARRAYS = """
import numpy as np
import warpfeed
from warpfeed import Augment, Buckets, Loader

labels = np.load("labels.npy")
score = np.zeros(len(labels), np.float32)
train, val = warpfeed.split(np.arange(100), np.array([0.9, 0.1]), seed=1, labels=labels)
lengths: np.ndarray[tuple[int], np.dtype[np.int32]] = np.arange(100, dtype=np.int32)
mean, std = np.array([0.5, 0.5, 0.5]), np.array([0.2, 0.2, 0.2], np.float32)


def curriculum(epoch: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.intp]]":
    return np.argsort(score)[: 100 * (epoch + 1)]


Loader("a", subset=np.flatnonzero(labels == 3), weights=score, normalize=(mean, std))
Loader("a", subset=np.array(train), sampler=curriculum, normalize=np.stack([mean, std]))
Loader("a", sampler=lambda epoch: np.random.default_rng(epoch).permutation(100))
Loader("a", sampler=lambda epoch: [3, 1], subset=set(val), weights=[1, 2.5], normalize=[mean, [0.1, 0.2, 0.3]])
buckets = Buckets(lengths, np.array([10, 20]))
loader = Loader("a", buckets=buckets)
for batch in loader:
    score[batch.ids] = 1.0
    print(buckets.width(batch.ids), loader.dataset.labels()[batch.ids], loader.dataset[batch.ids[0]]["key"])
warpfeed.pack("a", "b.tar", samples=np.arange(10), keys=np.array(["x"]))
warpfeed.Decoder(normalize=(mean, std))
"""

TENSORS = """
import torch
from warpfeed import Buckets, Loader, pack, split

mask = torch.rand(100) > 0.5
Loader("a", subset=mask.nonzero().flatten(), weights=torch.rand(100), normalize=(torch.ones(3), torch.ones(3)))
Loader("a", sampler=lambda epoch: torch.randperm(100, generator=torch.Generator().manual_seed(epoch)))
Loader("a", buckets=Buckets(torch.arange(100), torch.tensor([50])))
split(torch.arange(100), [0.5, 0.5], seed=1, labels=torch.zeros(100, dtype=torch.int64))
pack("a", "b.tar", samples=torch.arange(3))
"""

TORCH = """
import torch
from warpfeed import Decoder, Loader, NdArray

Loader("a", device=torch.device("cuda", 1), dtype=torch.bfloat16)
Decoder(device=torch.device("cpu"), dtype=torch.float16)
NdArray(torch.int64)
Loader("a", device=torch.float16)
"""


def run_module(*command: str, cwd: Path) -> tuple[int, str]:
    process = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=cwd)
    return process.returncode, process.stdout + process.stderr


def test_the_stubs_match_the_extension_module(tmp_path: Path) -> None:
    code, output = run_module("mypy.stubtest", "warpfeed._warpfeed", cwd=tmp_path)
    assert code == 0, output


def test_the_package_passes_strict_checks(tmp_path: Path) -> None:
    strict = ("mypy", "--strict", "--ignore-missing-imports", "--cache-dir", str(tmp_path))
    code, output = run_module(*strict, "-p", "warpfeed", cwd=tmp_path)
    assert code == 0, output
    assert (Path(warpfeed.__file__).parent / "py.typed").exists()


def test_user_code_is_type_checked(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    code, output = run_module("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "user.py", cwd=tmp_path)
    assert code == 1 and "Found 8 errors" in output, output
    output = output.replace("builtins.", "")  # older mypy versions print this prefix
    assert 'Revealed type is "warpfeed._report.Report"' in output and 'Revealed type is "list[list[int]]"' in output, output
    assert 'Argument "bach_size" to "Loader"' in output and 'Argument "decode_on" to "Decoder"' in output, output
    assert 'variable has type "int"' in output and 'incompatible type "str"; expected "int"' in output, output
    for argument, passed_type in [("device", "float"), ("dtype", "int"), ("normalize", "str")]:
        assert f'Argument "{argument}" to ' in output and f'has incompatible type "{passed_type}"' in output, output
    assert 'Argument 1 to "NdArray"' in output, output


def test_options_that_recommend_arrays_accept_them(tmp_path: Path) -> None:
    scripts = {"arrays.py": ARRAYS}
    try:
        import torch  # noqa: F401

        scripts["tensors.py"] = TENSORS
    except ImportError:
        pass
    for name, script in scripts.items():
        (tmp_path / name).write_text(script)
    code, output = run_module("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *scripts, cwd=tmp_path)
    assert code == 0, output


def test_torch_devices_and_dtypes_are_accepted(tmp_path: Path) -> None:
    need("torch")
    (tmp_path / "user.py").write_text(TORCH)
    code, output = run_module("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "user.py", cwd=tmp_path)
    assert code == 1 and "Found 1 error" in output and 'Argument "device" to "Loader"' in output, output
