"""Loaders in Hugging Face's ``Trainer``: ``import warpfeed.hf``.

::

    class Trainer(warpfeed.hf.Loaders, transformers.Trainer):
        pass

    loader = warpfeed.Loader("train", batch_size=64, shuffle=42, collate=warpfeed.collate.hf, drop_last=True)
    trainer = Trainer(model=model, args=args, train_dataset=loader)
    trainer.train(resume_from_checkpoint=True)

A resumed run continues with the batch after its checkpoint, also in the middle of an epoch.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from typing import Any, Iterator

from ._error import ConfigError
from ._loader import Loader
from ._trainers import Skipped

__all__ = ["Loaders"]

#: The file of a checkpoint with the position of the loader.
_STATE = "warpfeed.json"


def _transformers(module: str = "") -> Any:
    """The package, which is imported on use. Type checkers do not read it."""
    return importlib.import_module(f"transformers{module}")


def _saving() -> Any:
    """A callback that writes the position of the loader into each checkpoint."""

    def on_save(self: Any, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        if isinstance(train_dataloader, Skipped):
            train_dataloader = train_dataloader.loader
        if state.is_world_process_zero and isinstance(train_dataloader, Loader):
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            if os.path.isdir(folder):
                with open(os.path.join(folder, _STATE), "w", encoding="utf-8") as file:
                    json.dump(train_dataloader.state_dict(), file)

    return type("SaveLoader", (_transformers().TrainerCallback,), {"on_save": on_save})()


class Loaders:
    """A mixin for ``transformers.Trainer`` that takes a :class:`Loader` in place of a data set.

    ``train_dataset`` and ``eval_dataset`` may be loaders, and ``eval_dataset`` a dict of them. The batch
    size of the loader for training must be ``per_device_train_batch_size``, which the trainer reports.
    In a validation of several ranks use ``last_batch="pad"``: the shares then have one length, and
    :func:`warpfeed.collate.hf` gives padding the label -100.

    Raises:
        ConfigError: when training begins, if the batch sizes differ; when it resumes, if the seed, the
            data set or the position differs from the checkpoint.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._saved: tuple[int, int] | None = None
        self.add_callback(_saving())  # type: ignore[attr-defined]

    def get_train_dataloader(self) -> Any:
        """The loader that was given, or else that of the trainer."""
        loader = self.train_dataset  # type: ignore[attr-defined]
        if not isinstance(loader, Loader):
            return super().get_train_dataloader()  # type: ignore[misc]
        told, own = self.args.per_device_train_batch_size, loader.batch_size  # type: ignore[attr-defined]
        if own is not None and own != told:
            raise ConfigError(
                f"batch_size={own} and per_device_train_batch_size={told}: the trainer reports and scales by its own "
                "number; pass the same to both"
            )
        return loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The loader that was given, or else that of the trainer."""
        loader = self.eval_dataset if eval_dataset is None else eval_dataset  # type: ignore[attr-defined]
        if isinstance(loader, str):
            loader = self.eval_dataset[loader]  # type: ignore[attr-defined]
        if not isinstance(loader, Loader):
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        return _first_epoch(loader)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """The loader that was given, or else that of the trainer."""
        if not isinstance(test_dataset, Loader):
            return super().get_test_dataloader(test_dataset)  # type: ignore[misc]
        return _first_epoch(test_dataset)

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        loader, checkpoint = self.train_dataset, kwargs.get("resume_from_checkpoint")  # type: ignore[attr-defined]
        self._saved = None
        if isinstance(loader, Loader) and checkpoint is not None:
            self._saved = _checked(loader, checkpoint)
        with _skipping():
            return super()._inner_training_loop(*args, **kwargs)  # type: ignore[misc]

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        position: tuple[int, int] = super()._init_training_state(*args, **kwargs)  # type: ignore[misc]
        # With `ignore_data_skip` the program wants the trainer to begin the epoch again.
        if self._saved is not None and not self.args.ignore_data_skip:  # type: ignore[attr-defined]
            if self._saved != tuple(position):
                raise ConfigError(
                    f"the checkpoint was written after {self._saved[1]} batches of epoch {self._saved[0]}, and the trainer "
                    f"continues after {position[1]} of epoch {position[0]}: gradient_accumulation_steps, the batch size or "
                    "the number of ranks has changed"
                )
        return position


def _first_epoch(loader: Loader) -> Loader:
    """The loader, which begins with epoch 0 again: every evaluation has the same batches."""
    loader.set_epoch(0)
    return loader


def _checked(loader: Loader, checkpoint: str) -> tuple[int, int] | None:
    """The epoch and the batch at which a checkpoint continues, if it has a position.

    Raises:
        ConfigError: if the seed, the order or the data set differs.
    """
    path = os.path.join(checkpoint, _STATE)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        saved = json.load(file)
    coming = loader.epoch
    loader.load_state_dict(saved)
    epoch, batch = int(saved["epoch"]), int(saved["batch"])
    batches = loader._core.num_batches(epoch)
    # The trainer says where to continue, which may be before a state that is loaded. At the end of its
    # epoch the loader makes no batch, and forgets the state.
    next(loader.epoch_from(epoch, batches), None)
    loader.set_epoch(coming)
    return (epoch + 1, 0) if batch == batches else (epoch, batch)


@contextlib.contextmanager
def _skipping() -> Iterator[None]:
    """Lets the trainer skip batches of a loader; accelerate's own function takes only torch's loaders."""
    trainer = _transformers(".trainer")
    original = trainer.skip_first_batches

    def skip_first_batches(loader: Any, num_batches: int = 0) -> Any:
        ours = isinstance(loader, Loader)
        return loader.skip_first_batches(num_batches) if ours else original(loader, num_batches)

    trainer.skip_first_batches = skip_first_batches
    try:
        yield
    finally:
        trainer.skip_first_batches = original
