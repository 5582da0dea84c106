"""Tests that every sample of a validation set counts once, even if the ranks cannot divide it
evenly: with torch, Lightning and accelerate, three ranks must get the sums of a single process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import need
from warpfeed import Augment, Loader

#: 64 samples are three full global batches, and a batch of one sample for three ranks.
OPTIONS: dict[str, Any] = {"global_batch_size": 21, "augment": Augment.eval(40, 32)}
SAMPLES = 64

SHARED = """
import json, os, sys
from pathlib import Path
import torch, torch.distributed as dist
import warpfeed

def opened(last_batch, **more):
    return warpfeed.Loader(sys.argv[1], global_batch_size=21, augment=warpfeed.Augment.eval(40, 32),
                           distributed=True, last_batch=last_batch, num_workers=1, **more)

def errors_of(images, labels):
    '''Returns a different number for each sample.'''
    return images.double().mean((1, 2, 3)) * 16 + labels

def note(**facts):
    if dist.get_rank() == 0:
        Path(sys.argv[2], "found.json").write_text(json.dumps(facts))
"""

TORCH = """
    dist.init_process_group("gloo")
    found = {}
    for last in ("keep", "pad"):
        total = torch.zeros(2, dtype=torch.float64)
        for batch in opened(last):
            images, labels = batch
            valid = batch.valid.double()
            total += torch.stack([(errors_of(images, labels) * valid).sum(), valid.sum()])
        dist.all_reduce(total)
        found[last] = total.tolist()
    note(**found)
    dist.destroy_process_group()
"""

ACCELERATE = """
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    # With "pad", all ranks gather the same number of samples; `valid` is gathered with them.
    kept = []
    for batch in accelerator.prepare(opened("pad")):
        images, labels = batch
        errors, valid = accelerator.gather_for_metrics((errors_of(images, labels), batch.valid))
        kept.append(errors[valid])
    errors = torch.cat(kept)
    note(pad=[errors.sum().item(), len(errors)])
    dist.destroy_process_group()
"""

LIGHTNING = """
    import lightning, torchmetrics

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.mean, self.count = torchmetrics.MeanMetric(), torchmetrics.SumMetric()

        def val_dataloader(self):
            # Lightning rebuilds batches from their fields, so pass `valid` as a field.
            return opened("keep", collate=lambda batch: (batch["image"], batch["label"], batch.valid))

        def validation_step(self, batch, index):
            images, labels, valid = batch
            self.mean.update(errors_of(images, labels), valid.double())
            self.count.update(valid.sum())
            self.log("mean", self.mean)

        def configure_optimizers(self):
            return None

        def on_validation_epoch_end(self):
            mean, count = self.mean.compute().item(), self.count.compute().item()
            note(keep=[mean * count, count])

    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    lightning.Trainer(accelerator="cpu", devices=3, strategy="ddp", default_root_dir=sys.argv[2], **quiet).validate(Module())
"""


@pytest.mark.parametrize("trainer", ["torch", "accelerate", "lightning"])
def test_three_ranks_count_each_sample_of_an_uneven_set_once(
    mini: str, torch: Any, tmp_path: Path, trainer: str
) -> None:
    need(trainer)
    (tmp_path / "validate.py").write_text(
        SHARED + textwrap.dedent({"torch": TORCH, "accelerate": ACCELERATE, "lightning": LIGHTNING}[trainer])
    )
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3",
        str(tmp_path / "validate.py"), mini, str(tmp_path),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert process.returncode == 0, process.stdout + process.stderr

    total = 0.0
    for images, labels in Loader(mini, **OPTIONS):
        total += (images.double().mean((1, 2, 3)) * 16 + labels).sum().item()
    result = json.loads((tmp_path / "found.json").read_text())
    assert result
    for last, (sum_, count) in result.items():
        # torchmetrics accumulates in f32. A sample that is counted twice, or not at all, would
        # change the sum by more than a thousandth.
        assert count == SAMPLES and sum_ == pytest.approx(total, rel=1e-6), last


def test_valid_samples_of_all_ranks_are_the_dataset_in_order(mini: str) -> None:
    for last in ("keep", "pad"):
        for world in (2, 3, 5, 21):
            ranks = [
                Loader(mini, rank=rank, world_size=world, last_batch=last, output="numpy", **OPTIONS)
                for rank in range(world)
            ]
            samples = [
                id
                for shares in zip(*ranks, strict=True)
                for share in shares
                for id, valid in zip(share.ids, share.valid, strict=True)
                if valid
            ]
            assert samples == list(range(SAMPLES)), f"{last}, {world} ranks"
    dropped = Loader(mini, rank=0, world_size=3, drop_last=True, output="numpy", **OPTIONS)
    assert sum(len(batch.ids) for batch in dropped) == 21, "drop_last must drop one of 64 samples"
