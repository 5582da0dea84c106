"""Runs the programs in `python/examples` on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import ROOT, need

EXAMPLES = ROOT / "python" / "examples"


def run_example(name: str, *args: object, **environment: str) -> str:
    command = [sys.executable, EXAMPLES / f"{name}.py", *map(str, args)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=500, env={**os.environ, **environment})
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_every_example_has_a_test() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f'run_example("{path.stem}"' in text for path in EXAMPLES.glob("*.py"))


def test_tokens() -> None:
    assert run_example("tokens") == f"{20_000 // 64 * 64} targets\n"


def test_lightning_module(mini: str) -> None:
    need("lightning")
    # Each validation run sees every image once.
    assert "of 64 correct after 8 steps" in run_example("lightning_module", mini)


def test_lightning_module_continues(mini: str, tmp_path: Path) -> None:
    need("lightning")
    assert "after 4 steps" in run_example("lightning_module", mini, "--epochs", 1, "--checkpoints", tmp_path)
    output = run_example("lightning_module", mini, "--epochs", 2, "--resume", tmp_path / "last.ckpt")
    assert "of 64 correct after 8 steps" in output


def test_hf_trainer_continues(mini: str, tmp_path: Path) -> None:
    need("transformers")
    need("accelerate")
    assert "after 3 steps" in run_example("hf_trainer", mini, tmp_path, "--steps", 3)
    assert "after 6 steps" in run_example("hf_trainer", mini, tmp_path, "--steps", 6, "--resume")


def test_accelerate_loop_continues(mini: str, tmp_path: Path) -> None:
    need("accelerate")
    assert [run_example("accelerate_loop", mini, tmp_path) for _ in range(2)] == ["5 steps\n", "10 steps\n"]


TIMM = """
import sys
import timm.data
import torch
from timm.data import ImageDataset, create_loader

shared = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "use_prefetcher": False, "device": torch.device("cpu"), "pin_memory": False}
flags = {"re_prob": 0.25, "re_mode": "pixel", "auto_augment": "rand-m7-mstd0.5-inc1", "color_jitter": 0.4, "hflip": 0.5}
training = create_loader(
    ImageDataset(sys.argv[1]), (3, 32, 32), 4, is_training=True, interpolation="bicubic", num_workers=1, **flags, **shared
)
for images, labels in training:
    assert images.shape == (4, 3, 32, 32) and images.dtype == torch.float32
evaluation = create_loader(ImageDataset(sys.argv[1]), (3, 32, 32), 4, interpolation="bilinear", crop_pct=0.9, **shared)
print(len(training), torch.cat([labels for _, labels in evaluation]).bincount().tolist())
try:
    create_loader(ImageDataset(sys.argv[1]), (3, 32, 32), 4, is_training=True, num_aug_splits=3, **shared)
except SystemExit as e:
    print(e)
"""


def test_timm_train(mini: str, tmp_path: Path) -> None:
    need("timm")
    (tmp_path / "train.py").write_text(TIMM)
    images = sorted(Path(mini).rglob("*.jpg"))
    # timm sorts class names naturally: c2 before c10.
    for count, name in enumerate(["c1", "c2", "c10", "c20"], 1):
        (tmp_path / "set" / name).mkdir(parents=True)
        for number in range(count):
            (tmp_path / "set" / name / f"{number}.jpg").write_bytes(images[number].read_bytes())
    lines = run_example("timm_train", tmp_path / "train.py", tmp_path / "set").splitlines()
    assert lines == ["2 [1, 2, 3, 4]", "warpfeed has no equivalent of {'num_aug_splits': 3}; remove these options"]


def test_yolo_trainer(mini: str, tmp_path: Path) -> None:
    need("ultralytics")
    for folder in ("images", "labels"):
        (tmp_path / folder / "train").mkdir(parents=True)
    for number, image in enumerate(sorted(Path(mini).rglob("*.jpg"))[:24]):
        (tmp_path / "images/train" / f"{number}.jpg").write_bytes(image.read_bytes())
        (tmp_path / "labels/train" / f"{number}.txt").write_text(f"{number % 2} 0.5 0.5 0.6 0.5\n" * (number % 3))
    data = tmp_path / "data.yaml"
    data.write_text(f"path: {tmp_path}\ntrain: images/train\nval: images/train\nnames: [a, b]\n")
    options = {"--epochs": 2, "--imgsz": 64, "--batch": 8, "--project": tmp_path / "runs"}
    last = run_example("yolo_trainer", data, *(part for option in options.items() for part in option)).splitlines()[-1]
    assert last == "after 2 epochs, ['train/box_loss', 'train/cls_loss', 'train/dfl_loss']"


def test_jax_sharded(mini: str) -> None:
    need("jax")
    four = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    assert "on 4 devices" in run_example("jax_sharded", mini, **four)
