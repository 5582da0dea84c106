"""Tests a Loader without an adapter in Lightning (including its saved state), accelerate,
transformers, timm's training script, torch's utilities and JAX, if the package is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import need
from warpfeed import Augment, Loader

OPTIONS = {"batch_size": 16, "shuffle": True, "seed": 3, "augment": Augment.train(32), "normalize": "imagenet"}


def network(torch):  # type: ignore[no-untyped-def]
    layers = (
        torch.nn.Conv2d(3, 4, 3, stride=2),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 4),
    )
    return torch.nn.Sequential(*layers)


def test_torch_trains_compiles_its_step_and_saves_the_state(mini: str, torch: Any, tmp_path: Path) -> None:
    loader, model = Loader(mini, **OPTIONS), network(torch)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for images, labels in loader:
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    # An autograd graph may keep a batch for the backward pass.
    outputs = [(model(images), labels) for images, labels in loader]
    sum(torch.nn.functional.cross_entropy(out, labels) for out, labels in outputs).backward()
    # The state must also survive `weights_only=True`, which refuses arbitrary objects.
    torch.save({"loader": loader.state_dict(), "model": model.state_dict()}, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    again = Loader(mini, **OPTIONS)
    again.load_state_dict(state["loader"])
    assert again.epoch == 2
    assert torch.equal(next(iter(again))[0], next(iter(loader))[0])


def test_torchvision_transforms_run_on_whole_batches(mini: str, torch: Any) -> None:
    v2 = need("torchvision.transforms.v2")
    mixup = v2.MixUp(num_classes=4)
    images, labels = next(iter(Loader(mini, batch_transform=mixup, **OPTIONS)))
    assert images.shape == (16, 3, 32, 32) and labels.shape == (16, 4)
    flip = v2.RandomHorizontalFlip(1.0)
    plain, _ = next(iter(Loader(mini, **OPTIONS)))
    flipped, _ = next(iter(Loader(mini, batch_transform=[lambda x, y: (flip(x), y)], **OPTIONS)))
    assert torch.equal(flipped, plain.flip(-1))


def test_a_loader_in_torchs_dataloader_reports_a_fork(mini: str, torch: Any) -> None:
    class Wrapped(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __init__(self) -> None:
            self.loader = Loader(mini, **OPTIONS)

        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter(self.loader)

    assert len(list(torch.utils.data.DataLoader(Wrapped(), batch_size=None))) == 4
    forked = torch.utils.data.DataLoader(Wrapped(), batch_size=None, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match="worker threads do not survive fork"):
        list(forked)


def test_lightning_trains_and_saves_state_mid_epoch(mini: str, torch: Any, tmp_path: Path) -> None:
    lightning = need("lightning")
    seen: list[tuple[int, int]] = []

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = network(torch)

        def training_step(self, batch, index):  # type: ignore[no-untyped-def]
            images, labels = batch
            seen.append((self.current_epoch, int(images.sum() * 1000)))
            return torch.nn.functional.cross_entropy(self.model(images), labels)

        def configure_optimizers(self):  # type: ignore[no-untyped-def]
            return torch.optim.SGD(self.parameters(), 0.01)

    def trainer(**options):  # type: ignore[no-untyped-def]
        quiet = {
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "accelerator": "cpu",
            "devices": 1,
        }
        return lightning.Trainer(default_root_dir=tmp_path, **quiet, **options)

    trainer(max_epochs=2, enable_checkpointing=False).fit(Module(), Loader(mini, **OPTIONS))
    unbroken = list(seen)
    plain = Loader(mini, **OPTIONS)
    assert unbroken == [(epoch, int(images.sum() * 1000)) for epoch in range(2) for images, _ in plain], (
        "the loader must count the epochs"
    )
    assert [epoch for epoch, _ in unbroken] == [0] * 4 + [1] * 4
    # The run is killed in the middle of epoch 1, and resumed with a new Trainer.
    seen.clear()

    class Killed(Exception):
        pass

    class Kill(lightning.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer, *_):  # type: ignore[no-untyped-def]
            if trainer.global_step == 6:
                trainer.save_checkpoint(tmp_path / "mid.ckpt")
                raise Killed

    with pytest.raises(Killed):
        trainer(max_epochs=2, enable_checkpointing=False, callbacks=[Kill()]).fit(Module(), Loader(mini, **OPTIONS))
    assert seen == unbroken[:6]
    again = trainer(max_epochs=2, enable_checkpointing=False)
    again.fit(Module(), Loader(mini, **OPTIONS), ckpt_path=tmp_path / "mid.ckpt", weights_only=False)
    assert seen == unbroken


def test_lightning_validates_during_fit_and_standalone(mini: str, torch: Any, tmp_path: Path) -> None:
    lightning = need("lightning")
    seen: list[int] = []

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = network(torch)

        def training_step(self, batch, index):  # type: ignore[no-untyped-def]
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def validation_step(self, batch, index):  # type: ignore[no-untyped-def]
            seen.extend(batch[2])

        test_step = predict_step = validation_step

        def configure_optimizers(self):  # type: ignore[no-untyped-def]
            return torch.optim.SGD(self.parameters(), 0.01)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(
        default_root_dir=tmp_path, max_epochs=2, num_sanity_val_steps=0, enable_checkpointing=False, devices=1, **quiet
    )
    # Lightning rebuilds batches field by field and would drop `ids`, so pass them as a field.
    module = Module()
    loader = Loader(mini, collate=lambda batch: (*batch.values(), batch.ids), **{**OPTIONS, "shuffle": False})
    trainer.fit(module, Loader(mini, **OPTIONS), loader)
    assert seen == [*range(64)] * 2
    for run in (trainer.validate, trainer.test, trainer.predict):
        seen.clear()
        run(module, loader)
        assert seen == [*range(64)], run


def test_accelerate_passes_the_loader_through(mini: str, torch: Any) -> None:
    accelerate = need("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = network(torch)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.1), Loader(mini, **OPTIONS)
    )
    assert isinstance(loader, Loader) and len(loader) == 4
    for images, labels in loader:
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
        moved = accelerate.utils.send_to_device((images, labels), "cpu")
        assert moved[0].shape == images.shape


def test_a_transformers_trainer_resumes_mid_epoch(mini: str, torch: Any, tmp_path: Path) -> None:
    """A trainer without `warpfeed.hf`, which overrides the methods that return data loaders."""
    transformers = need("transformers")
    need("accelerate")
    steps: list[int] = []

    def named(images, labels):  # type: ignore[no-untyped-def]
        return {"pixel_values": images, "labels": labels}

    class Trainer(transformers.Trainer):  # type: ignore[misc]
        loader: Loader

        def get_train_dataloader(self):  # type: ignore[no-untyped-def]
            return self.loader

        def get_eval_dataloader(self, eval_dataset=None):  # type: ignore[no-untyped-def]
            return Loader(mini, batch_size=16, augment=Augment.eval(40, 32), normalize="imagenet", batch_transform=named)

        def training_step(self, model, inputs, *args, **options):  # type: ignore[no-untyped-def]
            steps.append(int(inputs["pixel_values"].sum() * 1000))
            return super().training_step(model, inputs, *args, **options)

    class SaveLoader(transformers.TrainerCallback):  # type: ignore[misc]
        def on_save(self, args, state, control, train_dataloader=None, **_):  # type: ignore[no-untyped-def]
            folder = tmp_path / f"checkpoint-{state.global_step}"
            (folder / "loader.json").write_text(json.dumps(train_dataloader.state_dict()))

    def trainer(largest: int, **options: Any) -> Any:
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], num_labels=4)
        quiet = {"use_cpu": True, "report_to": "none", "disable_tqdm": True}
        args = transformers.TrainingArguments(str(tmp_path), max_steps=largest, save_steps=2, **quiet, **options)
        model = transformers.ResNetForImageClassification(config)
        return Trainer(model=model, args=args, callbacks=[SaveLoader()])

    first = trainer(6)
    first.loader = Loader(mini, batch_transform=named, **OPTIONS)
    first.train()
    plain = Loader(mini, **OPTIONS)
    assert steps == [int(images.sum() * 1000) for epoch in (0, 1) for images, _ in plain.epoch_from(epoch, 0)][:6]
    assert first.evaluate()["eval_loss"] > 0
    unbroken = list(steps)
    steps.clear()
    again = trainer(6, ignore_data_skip=True)
    state = json.loads((tmp_path / "checkpoint-2" / "loader.json").read_text())
    again.loader = Loader(mini, batch_transform=named, resume=state, **OPTIONS)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert steps == unbroken[2:]


def test_a_loader_works_in_the_training_script_of_timm(mini: str, torch: Any) -> None:
    utils = need("timm.utils")
    timm = need("timm")
    loader = Loader(mini, **{**OPTIONS, "batch_size": 8, "augment": Augment.train(64)})
    model = timm.create_model("resnet18", num_classes=4)
    # The rest of this test is what timm's train.py does with its loader.
    if hasattr(loader, "sampler") and hasattr(loader.sampler, "set_epoch"):
        loader.sampler.set_epoch(3)
    last = len(loader) - 1
    meter = utils.AverageMeter()
    for number, (images, labels) in enumerate(loader):
        meter.update(torch.nn.functional.cross_entropy(model(images), labels).item(), images.size(0))
        assert number <= last
    assert meter.count == len(loader.dataset) == 64 and loader.epoch == 4


def test_jax_takes_batches_through_dlpack(mini: str) -> None:
    jax = need("jax")
    for layout in ["nhwc", "nchw"]:
        options = {**OPTIONS, "layout": layout}
        arrays = [images.copy() for images, _ in Loader(mini, output="numpy", **options)]
        for expected, batch in zip(arrays, Loader(mini, output="dlpack", **options), strict=True):
            images = jax.dlpack.from_dlpack(batch.images)
            assert images.shape == expected.shape and np.array_equal(np.asarray(images), expected)


def test_ranks_of_torch_distributed_are_found(mini: str, torch: Any, tmp_path: Path) -> None:
    """mp.spawn and Lightning leave some of torchrun's environment variables unset."""
    code = """
        import sys, torch, torch.distributed as dist, torch.multiprocessing as mp, warpfeed
        def work(rank, path, store):
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
            try:
                warpfeed.Loader(path, batch_size=8)
                raise SystemExit("no error")
            except warpfeed.WarpfeedError as e:
                assert f"this is rank {rank} of 2" in str(e), e
            augment = warpfeed.Augment.train(32)
            loader = warpfeed.Loader(path, batch_size=8, shuffle=True, seed=1, augment=augment, distributed=True)
            assert (loader.rank, loader.world_size, len(loader)) == (rank, 2, 4)
            ids = [sum((batch.ids for batch in loader), [])]
            both = [None, None]
            dist.all_gather_object(both, ids[0])
            if rank == 0:
                print(sorted(both[0] + both[1]) == list(range(64)))
            dist.destroy_process_group()
        if __name__ == "__main__":
            mp.start_processes(work, (sys.argv[1], sys.argv[2]), nprocs=2, start_method="spawn")
    """
    import subprocess
    import textwrap

    script = tmp_path / "work.py"
    script.write_text(textwrap.dedent(code))
    process = subprocess.run(
        [sys.executable, script, mini, tmp_path / "store"], capture_output=True, text=True, timeout=300
    )
    # Some versions of Gloo also print messages.
    assert process.returncode == 0 and process.stdout.endswith("True\n"), process.stdout + process.stderr
