"""Runs two ranks on the CPU with torch.multiprocessing, torchrun, accelerate and Lightning. With
`distributed=True`, each rank must get its own share. A rank must get all samples only if the
program requests this. Ranks on the same machine must divide its cores."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import need
from warpfeed import Augment, ConfigError, Loader, _ranks

SHARED = """
import json, os, sys, zlib
import torch, torch.distributed as dist
import warpfeed

def opened(**options):
    return warpfeed.Loader(sys.argv[1], batch_size=8, augment=warpfeed.Augment.resize(32, 32), **options)

def error_text(call):
    try:
        call()
    except warpfeed.ConfigError as e:
        return str(e)
    return "no error"

def first(loader):
    return lambda: next(iter(loader))

def seen(images):
    return [zlib.crc32(image.contiguous().numpy().tobytes()) for image in images]

def note(**facts):
    with open(os.path.join(sys.argv[2], f"{dist.get_rank()}.json"), "w") as file:
        json.dump(facts, file)

def note_shares(**facts):
    opened_loader = opened(distributed=True)
    all_ = opened(distributed=False)
    note(seen=[pixel for images, _ in opened_loader for pixel in seen(images)], workers=opened_loader.num_workers,
         all=[pixel for images, _ in all_ for pixel in seen(images)], workers_of_all=all_.num_workers, **facts)
"""


def noted(tmp_path: Path, mini: str, code: str, *launcher: str) -> list[dict[str, Any]]:
    """Runs two ranks under a launcher, and returns what they recorded."""
    (tmp_path / "script.py").write_text(SHARED + textwrap.dedent(code))
    command = [sys.executable, *launcher, str(tmp_path / "script.py"), mini, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert process.returncode == 0, process.stdout + process.stderr
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]


def check(ranks: list[dict[str, Any]], mini: str) -> None:
    """Checks that the shares together contain each sample once, and that the ranks divide the
    cores."""
    single = Loader(mini, batch_size=64, augment=Augment.resize(32, 32), output="numpy")
    samples = len(single.dataset)
    assert all(len(rank["seen"]) == samples // 2 for rank in ranks)
    images = {image.tobytes() for image in next(iter(single))[0]}
    assert len(set(ranks[0]["seen"]) | set(ranks[1]["seen"])) == len(images)
    for rank in ranks:
        assert rank["workers"] == max(1, single.num_workers // 2)
        if "all" in rank:
            assert len(rank["all"]) == samples and rank["workers_of_all"] == rank["workers"]
        assert "distributed=True" in rank["without_choice"] and "distributed=False" in rank["without_choice"], rank["without_choice"]


def test_mp_spawn_gives_shares_and_requires_a_choice(mini: str, torch: Any, tmp_path: Path) -> None:
    code = """
        import torch.multiprocessing as mp
        def work(rank, argv):
            sys.argv = argv
            before = opened()               # no rank is known yet
            early = error_text(lambda: opened(distributed=True))
            dist.init_process_group("gloo", init_method=f"file://{argv[2]}/store", rank=rank, world_size=2)
            note_shares(without_choice=error_text(first(before)), now=error_text(opened), early=early,
                        replayed=error_text(lambda: before.replay(1)))
            dist.destroy_process_group()
        if __name__ == "__main__":
            mp.start_processes(work, (sys.argv,), nprocs=2, start_method="spawn")
    """
    ranks = noted(tmp_path, mini, code)
    check(ranks, mini)
    for rank in ranks:
        assert "was opened without a rank" in rank["without_choice"] and rank["replayed"] == rank["without_choice"]
        assert "pass distributed=True" in rank["now"]
        assert "init_process_group()" in rank["early"] and "train_dataloader()" in rank["early"]


def test_torchrun_gives_shares_and_requires_a_choice(mini: str, torch: Any, tmp_path: Path) -> None:
    code = """
        without_choice = error_text(opened)
        early = opened(distributed=True)    # from the environment
        dist.init_process_group("gloo")
        next(iter(early))
        note_shares(without_choice=without_choice)
        dist.destroy_process_group()
    """
    check(noted(tmp_path, mini, code, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"), mini)


def test_accelerate_gives_shares_and_requires_a_choice(mini: str, torch: Any, tmp_path: Path) -> None:
    need("accelerate")
    code = """
        from accelerate import Accelerator
        without_choice = error_text(lambda: first(opened())())
        accelerator = Accelerator(cpu=True)
        assert accelerator.num_processes == 2, accelerator.state
        loader = accelerator.prepare(opened(distributed=True))
        assert isinstance(loader, warpfeed.Loader)
        note_shares(without_choice=without_choice)
        dist.destroy_process_group()
    """
    launcher = ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1")
    check(noted(tmp_path, mini, code, *launcher, "--mixed_precision=no", "--dynamo_backend=no"), mini)


def test_lightning_gives_shares_and_requires_a_choice(mini: str, torch: Any, tmp_path: Path) -> None:
    """Lightning's launcher runs the script for each rank before it initializes the group."""
    need("lightning")
    code = """
        import lightning
        top = opened()                      # as in a script that passes the loader to fit()
        early = error_text(lambda: opened(distributed=True))
        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)
                self.seen = []
            def train_dataloader(self):
                self.loader = opened(distributed=True)
                return self.loader
            def training_step(self, batch, index):
                images, labels = batch
                self.seen += seen(images)
                return self.layer(labels.float()[:, None]).sum()
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.01)
            def on_train_end(self):
                note(seen=self.seen, workers=self.loader.num_workers, early=early, without_choice=error_text(first(top)))
        quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
        lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, num_sanity_val_steps=0,
                          default_root_dir=sys.argv[2], **quiet).fit(Module())
    """
    ranks = noted(tmp_path, mini, code)
    check(ranks, mini)
    assert all("train_dataloader()" in rank["early"] for rank in ranks), ranks[0]["early"]


def test_ranks_that_disagree_about_samples_are_rejected(mini: str, torch: Any, tmp_path: Path) -> None:
    """With a different seed, dataset or position, a rank would take its share of a different
    order. With a different number of batches, it would block the other ranks."""
    extra = tmp_path / "more" / Path(mini).name
    (extra / "other").mkdir(parents=True)
    for folder in Path(mini).iterdir():
        (extra / folder.name).symlink_to(folder)
    (extra / "other" / "image.jpg").symlink_to(next(Path(mini).rglob("*.jpg")))
    for rank in range(2):
        (tmp_path / f"rank{rank}").symlink_to(mini)
    code = """
        import logging
        import torch.multiprocessing as mp
        def work(rank, argv):
            sys.argv = argv
            dist.init_process_group("gloo", init_method=f"file://{argv[2]}/store", rank=rank, world_size=2)
            def tried(data=argv[1], **options):
                augment = warpfeed.Augment.resize(32, 32)
                loader = warpfeed.Loader(data, batch_size=8, augment=augment, distributed=True, **options)
                epoch = loader.epoch_from(0, 0)
                # Rank 1 starts after rank 0, and rank 0 must not wait for rank 1.
                if rank:
                    dist.barrier()
                answer = error_text(lambda: next(epoch))
                if not rank:
                    dist.barrier()
                dist.barrier()
                return answer
            class Warnings(logging.Handler):
                def emit(self, record):
                    logged.append(record.getMessage())
            logged = []
            logging.getLogger("warpfeed").addHandler(Warnings(logging.WARNING))
            more = os.path.join(argv[2], "more", os.path.basename(argv[1]))
            note(same=tried(shuffle=True, seed=3), again=tried(shuffle=True, seed=3), seed=tried(shuffle=True, seed=rank + 1),
                 data=tried(more if rank else argv[1], shuffle=True, seed=3), subset=tried(subset=range(rank, 40 + rank)),
                 last=tried(drop_last=bool(rank)), lengths=tried(sampler=lambda epoch: range(40 + 16 * rank)), before=len(logged),
                 own=tried(os.path.join(argv[2], f"rank{rank}")), logged=logged)
            dist.destroy_process_group()
        if __name__ == "__main__":
            mp.start_processes(work, (sys.argv,), nprocs=2, start_method="spawn")
    """
    first, second = noted(tmp_path, mini, code)
    # A loader per rank, each with a dataset of its own, is only a warning: threads may begin several loaders in any order.
    assert (first.pop("before"), first.pop("logged")) == (0, [])
    assert second.pop("before") == 0 and len(second["logged"]) == 1 and "began 'rank0'" in second["logged"][0]
    assert second["own"] == "no error" and set(first.values()) == {"no error"}
    assert second["same"] == second["again"] == "no error"
    for name, word in (("seed", "seed (2 and 1)"), ("data", "samples (65 and 64)"), ("subset", "order"),
                       ("last", "in: last_batch (drop and keep)."), ("lengths", "in: num_batches (4 and 3).")):
        assert word in second[name] and "rank 1 differs from the rank that began first" in second[name], second


def test_disagreement_with_torch_distributed_is_refused(mini: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    options = {"batch_size": 8, "augment": Augment.train(32), "output": "numpy"}
    loader = Loader(mini, distributed=True, **options)
    shares = [Loader(mini, rank=0, world_size=1, **options), Loader(mini, distributed=False, **options)]
    monkeypatch.setattr(_ranks, "of_torch", lambda: _ranks.Rank(1, 2, None, 2))
    with pytest.raises(ConfigError, match="rank 1 of 2 of torch.distributed, but the loader was opened as rank 0 of 1"):
        next(iter(loader))
    for opened_loader in shares:
        next(iter(opened_loader))


@pytest.mark.parametrize(
    ("environment", "gpus", "local"),
    [
        ({"LOCAL_WORLD_SIZE": "4"}, 0, 4),
        ({"LOCAL_WORLD_SIZE": "64"}, 0, 16),
        ({"MASTER_ADDR": "127.0.0.1"}, 8, 16),
        ({"MASTER_ADDR": "node0"}, 8, 8),
        ({"MASTER_ADDR": "node0"}, 0, None),
        ({}, 8, 8),
        ({}, 0, 16),
    ],
)  # fmt: skip
def test_ranks_on_a_machine_are_counted_locally(
    monkeypatch: pytest.MonkeyPatch, torch: Any, environment: dict[str, str], gpus: int, local: int | None
) -> None:
    for name in ("LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert _ranks.local_world_size(16) == local
