"""Tests the integrations with Lightning, Hugging Face's `Trainer` and accelerate: a resumed run
gets the same samples as an uninterrupted run, and resuming a different run fails."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import need
from warpfeed import Augment, ConfigError, Loader, collate

OPTIONS: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3, "augment": Augment.train(32), "normalize": "imagenet"}


def fingerprint(images: Any) -> int:
    return int(images.double().abs().sum() * 1000)


def whole(mini: str, epochs: int, **options: Any) -> list[int]:
    loader = Loader(mini, **{**OPTIONS, **options})
    return [fingerprint(images) for epoch in range(epochs) for images, _ in loader.epoch_from(epoch, 0)]


@pytest.fixture
def module(torch: Any) -> Any:
    lightning = need("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 4))
            self.seen: list[int] = []
            self.validated = 0

        def training_step(self, batch, index):  # type: ignore[no-untyped-def]
            images, labels = batch
            self.seen.append(fingerprint(images))
            return torch.nn.functional.cross_entropy(self.model(images), labels)

        def validation_step(self, batch, index):  # type: ignore[no-untyped-def]
            self.validated += int(batch.valid.sum())

        def configure_optimizers(self):  # type: ignore[no-untyped-def]
            return torch.optim.SGD(self.parameters(), 0.01)

    return Module


@pytest.mark.parametrize("stop", [2, 4, 5])
def test_a_data_module_of_lightning_resumes_after_the_same_batch(
    mini: str, torch: Any, module: Any, tmp_path: Path, stop: int
) -> None:
    import lightning
    from warpfeed.lightning import DataModule

    def trainer(**options: Any) -> Any:
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        return lightning.Trainer(
            default_root_dir=tmp_path, devices=1, max_epochs=2, enable_checkpointing=False, **quiet, **options
        )

    def data() -> Any:
        shared = {name: OPTIONS[name] for name in ("batch_size", "normalize")}
        train = {"data": mini, "shuffle": True, "seed": 3, "augment": Augment.train(32)}
        val = {"data": mini, "batch_size": 24, "last_batch": "pad", "augment": Augment.eval(40, 32)}
        return DataModule(train=train, val=val, **shared)

    class Killed(Exception):
        pass

    class Kill(lightning.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == stop:
                trainer.save_checkpoint(tmp_path / "stopped.ckpt")
                raise Killed

    expected = whole(mini, 2)
    first = module()
    with pytest.raises(Killed):
        trainer(callbacks=[Kill()], num_sanity_val_steps=0).fit(first, data())
    assert first.seen == expected[:stop]
    again = module()
    resumed = data()
    trainer(num_sanity_val_steps=0).fit(again, resumed, ckpt_path=tmp_path / "stopped.ckpt", weights_only=False)
    assert again.seen == expected[stop:]
    assert again.validated == 64 * (1 if stop > 4 else 2 if stop < 4 else again.validated // 64)
    assert resumed._loaders == {}, "`fit` must close all loaders"


def test_a_data_module_has_only_the_requested_loaders(mini: str, torch: Any, module: Any, tmp_path: Path) -> None:
    import lightning
    from warpfeed.lightning import DataModule

    data = DataModule(train={"data": mini}, **OPTIONS)
    loader = data.train_dataloader()
    assert isinstance(loader, Loader) and loader.batch_size == 16
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(
        default_root_dir=tmp_path, max_epochs=1, enable_checkpointing=False, devices=1, limit_train_batches=1, **quiet
    )
    model = module()
    trainer.fit(model, data)
    assert len(model.seen) == 1 and model.validated == 0, "without a validation loader, the trainer must not validate"
    message = r"^train=\{'batch_size': 3\}: expected the arguments of a Loader, including 'data'"
    with pytest.raises(ConfigError, match=message):
        DataModule(train={"batch_size": 3})


def test_skip_first_batches_of_accelerate_names_our_method(mini: str, torch: Any) -> None:
    accelerate = need("accelerate")
    expected = whole(mini, 3)
    loader = accelerate.Accelerator(cpu=True).prepare(Loader(mini, **OPTIONS))
    with pytest.raises(ConfigError, match=r"call loader\.skip_first_batches\(n\)"):
        list(accelerate.skip_first_batches(loader, 2))
    # The loop from accelerate's documentation, resumed after 3 batches of epoch 1.
    actual = []
    for epoch in range(1, 3):
        loader.set_epoch(epoch)
        active = loader.skip_first_batches(3) if epoch == 1 else loader
        assert len(active) == (1 if epoch == 1 else 4)
        actual += [fingerprint(images) for images, _ in active]
    assert actual == expected[4 + 3 :]
    assert [len(loader.skip_first_batches(n)) for n in (0, 4, 9)] == [4, 0, 0]
    assert list(loader.skip_first_batches(4)) == []


@pytest.fixture
def trainer(mini: str, torch: Any, tmp_path: Path) -> Any:
    transformers = need("transformers")
    need("accelerate")
    import warpfeed.hf

    class Trainer(warpfeed.hf.Loaders, transformers.Trainer):  # type: ignore[misc]
        def training_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
            self.steps.append(fingerprint(inputs["pixel_values"]))
            return super().training_step(model, inputs, *args, **options)

    def opened(loader: dict[str, Any] | None = None, **options: Any) -> Any:
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], num_labels=4)
        quiet = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "logging_steps": 1}
        arguments = {"per_device_train_batch_size": 16, "save_steps": 1, **quiet, **options}
        args = transformers.TrainingArguments(str(tmp_path), **arguments)
        created = Trainer(
            model=transformers.ResNetForImageClassification(config),
            args=args,
            train_dataset=Loader(mini, collate=collate.hf, **{**OPTIONS, **(loader or {})}),
            eval_dataset={
                "a": Loader(mini, batch_size=24, augment=Augment.eval(40, 32), normalize="imagenet", collate=collate.hf)
            },
        )
        created.steps = []
        return created

    return opened


def test_a_transformers_trainer_resumes_after_any_step(mini: str, trainer: Any, tmp_path: Path) -> None:
    expected = whole(mini, 2)
    first = trainer(num_train_epochs=2)
    first.train()
    assert first.steps == expected
    for stop in (1, 3, 4, 6):
        again = trainer(num_train_epochs=2)
        again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop}"))
        assert again.steps == expected[stop:], stop
        assert again.state.epoch == 2.0 and again.state.global_step == 8
    metrics = [first.evaluate() for _ in range(2)]
    assert metrics[0]["eval_a_loss"] == metrics[1]["eval_a_loss"], "evaluations must have the same batches"


def test_a_transformers_trainer_resumes_accumulated_gradients(mini: str, trainer: Any, tmp_path: Path) -> None:
    options = {"batch_size": 10, "drop_last": False}
    expected = whole(mini, 2, **options)
    assert len(expected) == 14
    extra = {"num_train_epochs": 2, "gradient_accumulation_steps": 3, "per_device_train_batch_size": 10}
    first = trainer(options, **extra)
    first.train()
    assert first.steps == expected and first.state.global_step == 6
    for stop, batches in ((1, 3), (3, 7), (5, 13)):
        again = trainer(options, **extra)
        again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop}"))
        assert again.steps == expected[batches:], stop


def test_a_used_trainer_resumes_an_earlier_checkpoint(
    mini: str, trainer: Any, tmp_path: Path
) -> None:
    transformers = need("transformers")

    class Stopped(Exception):
        pass

    class Stop(transformers.TrainerCallback):  # type: ignore[misc]
        stop = 6

        def on_step_end(self, args: Any, state: Any, *_: Any, **options: Any) -> None:
            if state.global_step == self.stop:
                raise Stopped

    expected = whole(mini, 3)
    same, stop = trainer(num_train_epochs=3), Stop()
    same.add_callback(stop)
    with pytest.raises(Stopped):
        same.train()
    assert same.steps == expected[:6]
    stop.stop = 0
    # The first resume follows a stop in mid-epoch. The others follow complete runs.
    for checkpoint in (4, 4, 2, 8):
        same.steps = []
        same.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{checkpoint}"))
        assert same.steps == expected[checkpoint:], checkpoint


def test_comparing_a_state_does_not_change_the_loader(mini: str, torch: Any) -> None:
    loader, expected = Loader(mini, **OPTIONS), whole(mini, 2)
    state = {**loader.state_dict(), "batch": 2}
    for count in (2, 0, 4):
        batches = loader.epoch_from(1, 0)
        actual = [fingerprint(next(batches)[0]) for _ in range(count)]
        epoch_before, state_before = loader.epoch, loader.state_dict()
        assert loader._position_of(state) == (0, 2)
        assert loader._position_of({**state, "batch": 4}) == (1, 0), "the end of epoch 0 must be the start of epoch 1"
        with pytest.raises(ConfigError, match="the seed differs"):
            loader._position_of({**state, "seed": 4})
        assert (loader.epoch, loader.state_dict()) == (epoch_before, state_before)
        assert actual + [fingerprint(images) for images, _ in batches] == expected[4:], "the comparison must not change the rest of the epoch"
        loader.set_epoch(0)
        assert [fingerprint(images) for images, _ in loader] == expected[:4], count
        assert [fingerprint(images) for images, _ in loader.epoch_from(0, 2)] == expected[2:4], count


def test_a_comparison_calls_a_sampler_with_restored_state(mini: str, torch: Any) -> None:
    first = 0

    def order(epoch: int) -> list[int]:
        return [(first + n) % 64 for n in range(64)]

    def opened() -> Loader:
        return Loader(mini, batch_size=16, sampler=order, augment=Augment.eval(40, 32), normalize="imagenet")

    first, loader = 7, opened()
    expected = [fingerprint(images) for images, _ in loader]
    run = loader.epoch_from(0, 0)
    next(run), next(run)
    state = loader.state_dict()
    first, later = 3, opened()
    assert [fingerprint(images) for images, _ in later] != expected
    first = 7
    assert later._position_of(state) == (0, 2)
    assert [fingerprint(images) for images, _ in later.epoch_from(0, 2)] == expected[2:]


def test_concurrent_trainings_skip_their_own_batches(mini: str, trainer: Any, tmp_path: Path) -> None:
    """While two resumed runs overlap, `skip_first_batches` must still work for torch's
    `DataLoader`."""
    accelerate = need("accelerate")
    transformers = need("transformers")
    import torch
    import transformers.trainer as module

    expected, original = whole(mini, 2), module.skip_first_batches
    trainer(num_train_epochs=1).train()
    checkpoint = str(tmp_path / "checkpoint-3")
    begun, ended = [threading.Event(), threading.Event()], threading.Event()

    def waiting(number: int, event: threading.Event) -> Any:
        def on_train_begin(self: Any, *_: Any, **options: Any) -> None:
            begun[number].set()
            assert event.wait(60)

        return type("Wait", (transformers.TrainerCallback,), {"on_train_begin": on_train_begin})()

    first, second = trainer(num_train_epochs=2, save_strategy="no"), trainer(num_train_epochs=2, save_strategy="no")
    first.add_callback(waiting(0, begun[1]))
    second.add_callback(waiting(1, ended))
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first.train, resume_from_checkpoint=checkpoint)
        assert begun[0].wait(60)
        two = pool.submit(second.train, resume_from_checkpoint=checkpoint)
        assert begun[1].wait(60)
        numbers = torch.utils.data.DataLoader(torch.arange(8), batch_size=2)
        assert [part.tolist() for part in module.skip_first_batches(numbers, 3)] == [[6, 7]]
        one.result()
        ended.set()
        two.result()
    assert first.steps == second.steps == expected[3:]
    assert module.skip_first_batches is original is accelerate.skip_first_batches


def test_a_transformers_trainer_refuses_a_different_run(mini: str, trainer: Any, tmp_path: Path) -> None:
    trainer(max_steps=3).train()
    checkpoint = str(tmp_path / "checkpoint-3")
    state = json.loads((Path(checkpoint) / "warpfeed.json").read_text())
    assert (state["epoch"], state["batch"]) == (0, 3)
    with pytest.raises(ConfigError, match="seed"):
        trainer({"shuffle": True, "seed": 4}, max_steps=6).train(resume_from_checkpoint=checkpoint)
    with pytest.raises(ConfigError, match="written after 3 batches of epoch 0, but the trainer would continue after 2 batches of epoch 1"):
        trainer(max_steps=6, gradient_accumulation_steps=2).train(resume_from_checkpoint=checkpoint)
    with pytest.raises(ConfigError, match="batch_size=8 and per_device_train_batch_size=16"):
        trainer({"batch_size": 8}, max_steps=6).train()
    # With `ignore_data_skip`, the run restarts the epoch.
    again = trainer(max_steps=4, ignore_data_skip=True)
    again.train(resume_from_checkpoint=checkpoint)
    assert again.steps == whole(mini, 1)[:1]
