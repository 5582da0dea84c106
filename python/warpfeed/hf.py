"""Loaders in Hugging Face's ``Trainer``: ``import warpfeed.hf``.

::

    class Trainer(warpfeed.hf.Loaders, transformers.Trainer):
        pass

    loader = warpfeed.Loader("train", batch_size=64, shuffle=True, seed=42, collate=warpfeed.collate.hf, drop_last=True)
    trainer = Trainer(model=model, args=args, train_dataset=loader)
    trainer.train(resume_from_checkpoint=True)

A resumed run continues with the batch after its checkpoint, even in the middle of an epoch.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
from typing import Any

from ._error import ConfigError
from ._loader import Loader
from ._trainers import Skipped

__all__ = ["Loaders"]

#: The file of a checkpoint with the position of the loader.
_STATE = "warpfeed.json"


def _transformers(module: str = "") -> Any:
    """Imports and returns the package on first use, hidden from type checkers."""
    return importlib.import_module(f"transformers{module}")


def _saving() -> Any:
    """A callback that saves the position of the loader in each checkpoint."""

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
    """A mixin for ``transformers.Trainer`` that accepts a :class:`Loader` in place of a dataset.

    ``train_dataset`` and ``eval_dataset`` may be loaders, and ``eval_dataset`` may be a dict of loaders. The batch
    size of the loader for training must equal ``per_device_train_batch_size``, which the trainer reports.
    Use ``last_batch="pad"`` to validate on several ranks: all ranks then have the same number of batches, and
    :func:`warpfeed.collate.hf` sets the labels of padding to -100.

    Raises:
        ConfigError: at the start of the training, if the batch sizes differ; on a resume, if the seed, the
            dataset or the position differs from the checkpoint.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._saved: tuple[int, int] | None = None
        self.add_callback(_saving())  # type: ignore[attr-defined]

    def get_train_dataloader(self) -> Any:
        """The loader if one was passed, and otherwise the data loader of the trainer."""
        loader = self.train_dataset  # type: ignore[attr-defined]
        if not isinstance(loader, Loader):
            return super().get_train_dataloader()  # type: ignore[misc]
        told, own = self.args.per_device_train_batch_size, loader.batch_size  # type: ignore[attr-defined]
        if own is not None and own != told:
            raise ConfigError(
                f"batch_size={own} and per_device_train_batch_size={told}: the trainer reports and scales by its own "
                "number; pass the same number to both"
            )
        return loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The loader if one was passed, and otherwise the data loader of the trainer."""
        loader = self.eval_dataset if eval_dataset is None else eval_dataset  # type: ignore[attr-defined]
        if isinstance(loader, str):
            loader = self.eval_dataset[loader]  # type: ignore[attr-defined]
        if not isinstance(loader, Loader):
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        return _first_epoch(loader)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """The loader if one was passed, and otherwise the data loader of the trainer."""
        if not isinstance(test_dataset, Loader):
            return super().get_test_dataloader(test_dataset)  # type: ignore[misc]
        return _first_epoch(test_dataset)

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        loader, checkpoint = self.train_dataset, kwargs.get("resume_from_checkpoint")  # type: ignore[attr-defined]
        self._saved = None
        if isinstance(loader, Loader) and checkpoint is not None:
            self._saved = _saved_position(loader, checkpoint)
        with _skipping:
            return super()._inner_training_loop(*args, **kwargs)  # type: ignore[misc]

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        position: tuple[int, int] = super()._init_training_state(*args, **kwargs)  # type: ignore[misc]
        # `ignore_data_skip` makes the trainer begin the epoch again.
        if self._saved is not None and not self.args.ignore_data_skip:  # type: ignore[attr-defined]
            if self._saved != tuple(position):
                raise ConfigError(
                    f"the checkpoint was written after {self._saved[1]} batches of epoch {self._saved[0]}, and the "
                    f"trainer continues after {position[1]} batches of epoch {position[0]}: "
                    "gradient_accumulation_steps, the batch size or the number of ranks has changed"
                )
        return position


def _first_epoch(loader: Loader) -> Loader:
    """Returns the loader at epoch 0, so that every evaluation has the same batches."""
    loader.set_epoch(0)
    return loader


def _saved_position(loader: Loader, checkpoint: str) -> tuple[int, int] | None:
    """The epoch and the batch at which a checkpoint continues, if a position is saved in it.

    Raises:
        ConfigError: if the seed, the order or the dataset differs.
    """
    path = os.path.join(checkpoint, _STATE)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return loader._position_of(json.load(file))


class _Skipping:
    """Lets trainers skip batches of a loader, because accelerate's function supports only loaders of torch.

    ``transformers`` looks the function up in its module, so it is replaced there, from the beginning of
    the first training with a loader to the end of the last one. In all threads, other loaders go to the original
    function.
    """

    def __init__(self) -> None:
        self._lock, self._trainings = threading.Lock(), 0

    def __enter__(self) -> None:
        trainer = _transformers(".trainer")
        with self._lock:
            self._trainings += 1
            if self._trainings > 1:
                return
            self._found = found = trainer.skip_first_batches

            def skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
                ours = isinstance(dataloader, Loader)
                return dataloader.skip_first_batches(num_batches) if ours else found(dataloader, num_batches)

            self._ours = trainer.skip_first_batches = skip_first_batches

    def __exit__(self, *_: Any) -> None:
        trainer = _transformers(".trainer")
        with self._lock:
            self._trainings -= 1
            # A function that was installed later stays.
            if self._trainings == 0 and trainer.skip_first_batches is self._ours:
                trainer.skip_first_batches = self._found


_skipping = _Skipping()
