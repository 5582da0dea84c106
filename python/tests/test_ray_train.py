"""Tests that a loader finds its rank inside a Ray Train function, and that a run that loses a
worker continues from its last reported checkpoint with the batches of an uninterrupted run."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any, Iterator

import pytest
from conftest import need
from warpfeed import Augment, Loader, _ranks

OPTIONS = {"global_batch_size": 12, "shuffle": True, "seed": 7, "augment": Augment.train(32), "output": "numpy", "num_workers": 1}
EPOCHS, KILLED = 2, 8


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    result = need("ray")
    need("ray.train")
    with pytest.MonkeyPatch.context() as environment:
        # Ray's workers inherit the variables of the SLURM task that started Ray, which must not
        # count as the rank.
        environment.setenv("SLURM_PROCID", "0")
        environment.setenv("SLURM_NTASKS", "1")
        # Ray gives up on workers that start slowly on a busy machine.
        environment.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "600")
        result.init(num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
        yield result
        result.shutdown()


@pytest.mark.parametrize("trainer", ["plain", "torch"])
def test_ray_train_finds_the_rank_and_survives_a_lost_worker(
    mini: str, ray: Any, tmp_path: Path, trainer: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    options, epochs, killed = OPTIONS, EPOCHS, KILLED

    # Ray copies local functions to its workers.
    def described(batch: Any) -> list[Any]:
        """Returns the index, the pixels and the label of each valid sample."""
        samples = zip(batch.ids, batch.images, batch.labels.tolist(), batch.valid, strict=True)
        return [[id, image.tobytes().hex(), label] for id, image, label, valid in samples if valid]

    def train_loop_per_worker(config: dict[str, Any]) -> None:
        import ray.train
        from warpfeed import Loader

        context = ray.train.get_context()
        rank, world = context.get_world_rank(), context.get_world_size()
        try:
            Loader(mini, **options)
            raise AssertionError("each rank would get all samples")
        except ValueError as e:
            assert f"this is rank {rank} of {world}" in str(e), e
        loader = Loader(mini, distributed=True, **options)
        assert (loader.rank, loader.world_size) == (rank, world)
        checkpoint, restored, history = ray.train.get_checkpoint(), 0, []
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                state = json.loads(Path(folder, "state.json").read_text())
            loader.load_state_dict(state["loader"])
            history, restored = state["history"], 1
        while loader.epoch < epochs:
            for batch in loader:
                step = batch.epoch * len(loader) + batch.batch_index
                if (step, rank, restored) == (killed, 1, 0):
                    os.kill(os.getpid(), signal.SIGKILL)
                with tempfile.TemporaryDirectory() as folder:
                    saved, history = None, [*history, step]
                    if rank == 0:
                        state = {"loader": loader.state_dict(), "history": history}
                        Path(folder, "state.json").write_text(json.dumps(state))
                        saved = ray.train.Checkpoint.from_directory(folder)
                    ray.train.report({"step": step}, checkpoint=saved)
                (out / f"{step}-{rank}-{restored}").write_text(json.dumps(described(batch)))

    if trainer == "torch":
        need("torch")
        from ray.train.torch import TorchTrainer as Trainer
    else:
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer as Trainer
    from ray.train import FailureConfig, RunConfig, ScalingConfig

    run = RunConfig(name="run", storage_path=str(tmp_path / "ray"), failure_config=FailureConfig(max_failures=1))
    result = Trainer(train_loop_per_worker, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
    assert result.error is None

    with result.checkpoint.as_directory() as folder:
        history = json.loads(Path(folder, "state.json").read_text())["history"]
    assert history == list(range(EPOCHS * 6)), "the model must be trained on each batch once"
    expected = [described(batch) for loader in [Loader(mini, **OPTIONS)] for _ in range(EPOCHS) for batch in loader]
    steps = [{int(path.name.split("-")[0]) for path in out.glob(f"*-0-{restored}")} for restored in (0, 1)]
    # Ray may have stored fewer checkpoints than were reported.
    assert steps[0] == set(range(KILLED)) and steps[1] == set(range(min(steps[1]), EPOCHS * 6)), steps
    assert 0 < min(steps[1]) <= KILLED
    for restored, steps_ in enumerate(steps):
        for step in steps_:
            shares = [json.loads((out / f"{step}-{rank}-{restored}").read_text()) for rank in (0, 1)]
            assert shares[0] + shares[1] == expected[step], f"step {step}"


def test_a_program_outside_ray_train_has_no_ray_rank() -> None:
    need("ray.train")
    assert _ranks.of_ray() is None
