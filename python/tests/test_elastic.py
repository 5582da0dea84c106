"""Tests elastic training under torchrun: a run continues with fewer or more ranks, and delivers the
same global batches, byte for byte, as an uninterrupted run. If a rank dies or hangs, the other
ranks fail instead of waiting forever, and a restart continues. Runs on the CPU, with gloo."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
from conftest import need
from warpfeed import Augment, Loader

#: The samples per global batch, and the batches in an epoch of 64 samples.
GLOBAL, BATCHES = 12, 6
#: The step at which a rank is lost, the step at which a rank rejoins, and the number of steps.
LOST, BACK, STEPS = 8, 16, 24

SHARED = """
import hashlib, json, os, signal, sys, time
from datetime import timedelta
from pathlib import Path
import torch, torch.distributed as dist
import warpfeed

OUT = Path(sys.argv[2])
GLOBAL, BATCHES, LOST, BACK, STEPS = map(int, sys.argv[3:8])
NEWEST = OUT / "newest"     # contains the path or the state of the newest complete checkpoint

def named(batch):
    # Lightning rebuilds batches from their fields, so pass the metadata as fields.
    return {"image": batch["image"], "label": batch["label"], "valid": batch.valid, "ids": batch.ids,
            "step": batch.epoch * BATCHES + batch.batch_index}

def open_loader():
    return warpfeed.Loader(sys.argv[1], global_batch_size=GLOBAL, shuffle=True, seed=7, augment=warpfeed.Augment.train(32),
                           distributed=True, num_workers=1, collate=named)

def replace(path, text):
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)

def loss_of(model, batch):
    found = model(batch["image"].float().mean((2, 3)) / 255).squeeze(1)
    return (found - batch["label"].float()).square().mean()

class Notes:
    '''Records the samples that each rank receives, and the training steps of the model as (step,
    world size, group). A group is the set of ranks that run together between two restarts. Its name
    is a timestamp.'''

    def __init__(self):
        name = [time.time_ns()]
        dist.broadcast_object_list(name)
        self.group, self.world = name[0], dist.get_world_size()
        self.file = open(OUT / f"{self.group}-{dist.get_rank()}.jsonl", "w")
        self.history = []

    def received(self, batch):
        step = batch["step"]
        samples = [[id, hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest(), label]
                   for id, image, label, valid in zip(batch["ids"], batch["image"], batch["label"].tolist(), batch["valid"])
                   if valid]
        self.file.write(json.dumps([step, samples]) + "\\n")
        self.file.flush()
        lost = OUT / "lost"
        if step == LOST and self.world == 4 and os.environ.get("IS_LOST"):
            # Simulate the loss of the machine: kill the agent that would report the death of this
            # rank, and then this rank.
            lost.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        # Three ranks train only the steps from LOST to BACK - 1. Before any other step, they block
        # until torchrun restarts the group with four ranks.
        while self.world == 3 and not (LOST <= step < BACK and lost.exists()):
            time.sleep(0.05)

    def trained(self, batch):
        self.history.append([batch["step"], self.world, self.group])
        return self.history[-1][0]

    def state_dict(self):
        return {"history": self.history}

    def load_state_dict(self, state):
        self.history = state["history"]

    def done(self):
        if dist.get_rank() == 0:
            replace(OUT / "history", json.dumps(self.history))
"""

TORCH = """
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    notes, loader = Notes(), open_loader()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    if NEWEST.exists():
        state = torch.load(NEWEST.read_text(), weights_only=True)
        model.load_state_dict(state["model"])
        loader.load_state_dict(state["loader"])
        notes.load_state_dict(state["notes"])
    while loader.epoch < STEPS // BATCHES:
        for batch in loader:
            notes.received(batch)
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
            step = notes.trained(batch)
            if dist.get_rank() == 0:
                path = OUT / f"{step}.pt"
                torch.save({"model": model.state_dict(), "loader": loader.state_dict(),
                            "notes": notes.state_dict()}, path)
                replace(NEWEST, str(path))
    notes.done()
    dist.destroy_process_group()
"""

ACCELERATE = """
    from accelerate import Accelerator, InitProcessGroupKwargs
    accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=60))])
    notes, loader = Notes(), open_loader()
    model = torch.nn.Linear(3, 1)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01), loader)
    accelerator.register_for_checkpointing(loader, notes)
    if NEWEST.exists():
        accelerator.load_state(NEWEST.read_text())
    while loader.epoch < STEPS // BATCHES:
        for batch in loader:
            notes.received(batch)
            optimizer.zero_grad()
            accelerator.backward(loss_of(model, batch))
            optimizer.step()
            path = OUT / f"{notes.trained(batch)}"
            accelerator.save_state(str(path))
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                replace(NEWEST, str(path))
    notes.done()
    dist.destroy_process_group()
"""

LIGHTNING = """
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)
            self.restored = None

        def train_dataloader(self):
            return open_loader()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

        def on_load_checkpoint(self, checkpoint):
            self.restored = checkpoint["notes"]

        def on_save_checkpoint(self, checkpoint):
            checkpoint["notes"] = self.notes.state_dict()

        def on_train_start(self):
            self.notes = Notes()
            if self.restored is not None:
                self.notes.load_state_dict(self.restored)

        def training_step(self, batch, index):
            self.notes.received(batch)
            return loss_of(self.layer, batch)

        def on_train_end(self):
            self.notes.done()

    class Save(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            path = OUT / f"{module.notes.trained(batch)}.ckpt"
            trainer.save_checkpoint(path)
            if trainer.is_global_zero:
                replace(NEWEST, str(path))

    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = lightning.Trainer(accelerator="cpu", strategy="ddp", devices=local,
                                num_nodes=int(os.environ["WORLD_SIZE"]) // local, max_epochs=STEPS // BATCHES,
                                num_sanity_val_steps=0, default_root_dir=OUT, callbacks=[Save()], **quiet)
    trainer.fit(Module(), ckpt_path=NEWEST.read_text() if NEWEST.exists() else None, weights_only=False)
"""


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


class Agents:
    """Agents of torchrun. Each simulates a machine with one rank."""

    def __init__(self, folder: Path, script: str, *arguments: object) -> None:
        self.folder, self.port, self.started = folder, free_port(), list[subprocess.Popen[bytes]]()
        (folder / "train.py").write_text(SHARED + textwrap.dedent(script))
        # On a busy machine, an agent may not report for a while. torchrun considers it lost only
        # after 20 seconds.
        rendezvous = "last_call_timeout=5,keep_alive_interval=2,keep_alive_max_attempt=10"
        self.command = [
            sys.executable, "-m", "torch.distributed.run", "--nnodes=3:4", "--nproc-per-node=1", "--max-restarts=3",
            "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-id=elastic",
            f"--rdzv-conf={rendezvous}", "--local-addr=127.0.0.1", str(folder / "train.py"), *map(str, arguments),
        ]  # fmt: skip

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"agent-{len(self.started)}.log", "wb") as log:
            # If the TCP store of the rendezvous were shared, a new group could read the addresses
            # of the previous group from it.
            variables = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **environment}
            agent = subprocess.Popen(
                self.command, stdout=log, stderr=log, env={**os.environ, **variables}, start_new_session=True
            )
        self.started.append(agent)
        return agent

    def start_host(self) -> subprocess.Popen[bytes]:
        """Starts the agent that hosts the rendezvous, and waits until it listens. This agent must
        not be killed: the others need the rendezvous."""
        host = self.start()
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return host
            except ConnectionRefusedError:
                assert host.poll() is None, self.logs()
                time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in sorted(self.folder.glob("agent-*.log")))

    def end(self) -> None:
        for agent in self.started:
            try:
                os.killpg(agent.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            agent.wait()


def undisturbed(mini: str, steps: int) -> list[list[list[Any]]]:
    """Returns the samples of each global batch in an uninterrupted run: index, hash of the image
    bytes, and label."""

    def batches() -> Iterator[list[list[Any]]]:
        loader = Loader(
            mini, global_batch_size=GLOBAL, shuffle=True, seed=7, augment=Augment.train(32), layout="nchw", output="numpy"
        )
        while True:
            for batch in loader:
                hashes = [hashlib.sha256(image.tobytes()).hexdigest() for image in batch.images]
                yield [list(sample) for sample in zip(batch.ids, hashes, batch.labels.tolist(), strict=True)]

    return [batch for batch, _ in zip(batches(), range(steps), strict=False)]


def joined(folder: Path, group: int, world: int) -> dict[int, list[list[Any]]]:
    """Returns the samples that the ranks of a group received in each step, in rank order."""
    steps: dict[int, list[list[Any]]] = {}
    for rank in range(world):
        for line in (folder / f"{group}-{rank}.jsonl").read_text().splitlines():
            step, samples = json.loads(line)
            steps.setdefault(step, []).extend(samples)
    return steps


@pytest.mark.parametrize("trainer", ["torch", "accelerate", "lightning"])
def test_four_to_three_to_four_ranks_keep_the_batches(
    mini: str, torch: Any, tmp_path: Path, trainer: str
) -> None:
    need(trainer)
    script = {"torch": TORCH, "accelerate": ACCELERATE, "lightning": LIGHTNING}[trainer]
    agents = Agents(tmp_path, script, mini, tmp_path, GLOBAL, BATCHES, LOST, BACK, STEPS)
    try:
        survivors = [agents.start_host(), agents.start(), agents.start()]
        lost = agents.start(IS_LOST="1")
        assert lost.wait(timeout=600) == -signal.SIGKILL, agents.logs()
        # The three remaining ranks train until step BACK, where they wait for the fourth rank.
        deadline = time.monotonic() + 600
        while not any(line.startswith(f"[{BACK}, ") for path in tmp_path.glob("*.jsonl") for line in path.open()):
            assert time.monotonic() < deadline and all(agent.poll() is None for agent in survivors), agents.logs()
            time.sleep(0.1)
        for agent in [*survivors, agents.start()]:
            assert agent.wait(timeout=600) == 0, agents.logs()
    finally:
        agents.end()

    history = json.loads((tmp_path / "history").read_text())
    assert [step for step, _, _ in history] == list(range(STEPS)), "the model was not trained exactly once on each batch"
    assert [world for _, world, _ in history] == [4] * LOST + [3] * (BACK - LOST) + [4] * (STEPS - BACK)
    expected = undisturbed(mini, STEPS)
    groups = {(group, world): joined(tmp_path, group, world) for _, world, group in history}
    for step, world, group in history:
        assert groups[group, world][step] == expected[step], f"step {step} on {world} ranks"


DDP = """
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    notes, loader = Notes(), open_loader()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    if NEWEST.exists():
        state = json.loads(NEWEST.read_text())
        loader.load_state_dict(state["loader"])
        notes.load_state_dict(state["notes"])
    while loader.epoch < STEPS // BATCHES:
        for batch in loader:
            notes.received(batch)
            rank = dist.get_rank()
            if (rank, notes.world) == (5, 8) and len(notes.history) == LOST:
                os.kill(os.getpid(), getattr(signal, sys.argv[8]))
            try:
                loss_of(model, batch).backward()
            except RuntimeError as e:
                (OUT / f"error-{rank}").write_text(str(e))
                raise
            notes.trained(batch)
            if rank == 0:
                replace(NEWEST, json.dumps({"loader": loader.state_dict(), "notes": notes.state_dict()}))
    notes.done()
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_seven_ranks_continue_after_losing_one_of_eight(
    mini: str, torch: Any, tmp_path: Path, how: str
) -> None:
    (tmp_path / "train.py").write_text(SHARED + textwrap.dedent(DDP))

    def run(world: int) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}",
            str(tmp_path / "train.py"), mini, str(tmp_path), *map(str, (GLOBAL, BATCHES, LOST, -1, STEPS)), how,
        ]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)

    lost = run(8)
    assert lost.returncode != 0
    if how == "SIGKILL":
        report = lost.stderr[lost.stderr.index("Root Cause") :]
        assert re.search(r"rank +: 5 ", report) and "Signal 9 (SIGKILL)" in report, lost.stderr
    else:
        # The other ranks detect the stopped rank only after the timeout.
        errors = [path.read_text() for path in tmp_path.glob("error-*")]
        assert errors and any("imed out" in text for text in errors), (errors, lost.stderr)
    again = run(7)
    assert again.returncode == 0, again.stderr

    history = json.loads((tmp_path / "history").read_text())
    assert [step for step, _, _ in history] == list(range(STEPS))
    assert [world for _, world, _ in history] == [8] * LOST + [7] * (STEPS - LOST)
    expected = undisturbed(mini, STEPS)
    for step, world, group in history:
        assert joined(tmp_path, group, world)[step] == expected[step], f"step {step} on {world} ranks"
