"""Lets Hugging Face's ``Trainer`` use loaders: ``import warpfeed.hf``.

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

_STATE_FILE = "warpfeed.json"


def _transformers(module: str = "") -> Any:
    """Imports ``transformers`` at run time. Type checkers do not see the import, because the
    package may not be installed."""
    return importlib.import_module(f"transformers{module}")


def _save_callback() -> Any:
    """Returns a trainer callback that saves the position of the loader in each checkpoint."""

    def on_save(self: Any, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        if isinstance(train_dataloader, Skipped):
            train_dataloader = train_dataloader.loader
        if state.is_world_process_zero and isinstance(train_dataloader, Loader):
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            if os.path.isdir(folder):
                with open(os.path.join(folder, _STATE_FILE), "w", encoding="utf-8") as file:
                    json.dump(train_dataloader.state_dict(), file)

    return type("SaveLoader", (_transformers().TrainerCallback,), {"on_save": on_save})()


class Loaders:
    """A mixin for ``transformers.Trainer`` that accepts a :class:`Loader` in place of a dataset.

    ``train_dataset`` and ``eval_dataset`` may be loaders, and ``eval_dataset`` may also be a dict
    of loaders. The batch size of the training loader must equal ``per_device_train_batch_size``,
    because the trainer computes its statistics from this argument. To validate on several ranks,
    use ``last_batch="pad"``: all ranks then have the same number of batches, and
    :func:`warpfeed.collate.hf` sets the labels of padding to -100.

    Raises:
        ConfigError: if the batch sizes differ when training starts, or if the seed,
            ``last_batch``, the order, the augmentation, the dataset or the position differs from
            the checkpoint when training resumes.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._checkpoint_position: tuple[int, int] | None = None
        self.add_callback(_save_callback())  # type: ignore[attr-defined]

    def get_train_dataloader(self) -> Any:
        """Returns ``train_dataset`` if it is a loader, and the trainer's own data loader
        otherwise."""
        loader = self.train_dataset  # type: ignore[attr-defined]
        if not isinstance(loader, Loader):
            return super().get_train_dataloader()  # type: ignore[misc]
        expected, actual = self.args.per_device_train_batch_size, loader.batch_size  # type: ignore[attr-defined]
        if actual is not None and actual != expected:
            raise ConfigError(
                f"batch_size={actual} and per_device_train_batch_size={expected}: the trainer computes steps and "
                "statistics from its own batch size; pass the same number to both"
            )
        return loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Returns the evaluation dataset at epoch 0 if it is a loader, and the trainer's own data
        loader otherwise."""
        loader = self.eval_dataset if eval_dataset is None else eval_dataset  # type: ignore[attr-defined]
        if isinstance(loader, str):
            loader = self.eval_dataset[loader]  # type: ignore[attr-defined]
        if not isinstance(loader, Loader):
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        return _first_epoch(loader)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Returns ``test_dataset`` at epoch 0 if it is a loader, and the trainer's own data loader
        otherwise."""
        if not isinstance(test_dataset, Loader):
            return super().get_test_dataloader(test_dataset)  # type: ignore[misc]
        return _first_epoch(test_dataset)

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        loader, checkpoint = self.train_dataset, kwargs.get("resume_from_checkpoint")  # type: ignore[attr-defined]
        self._checkpoint_position = None
        if isinstance(loader, Loader) and checkpoint is not None:
            self._checkpoint_position = _saved_position(loader, checkpoint)
        with _skip_patch:
            return super()._inner_training_loop(*args, **kwargs)  # type: ignore[misc]

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        position: tuple[int, int] = super()._init_training_state(*args, **kwargs)  # type: ignore[misc]
        # With `ignore_data_skip`, the trainer restarts the epoch instead of continuing in it.
        if self._checkpoint_position is not None and not self.args.ignore_data_skip:  # type: ignore[attr-defined]
            if self._checkpoint_position != tuple(position):
                epoch, batches = self._checkpoint_position
                raise ConfigError(
                    f"the checkpoint was written after {batches} batches of epoch {epoch}, but the "
                    f"trainer would continue after {position[1]} batches of epoch {position[0]}: "
                    "gradient_accumulation_steps, the batch size or the number of ranks has changed; restore the "
                    "earlier values"
                )
        return position


def _first_epoch(loader: Loader) -> Loader:
    """Sets epoch 0, so that every evaluation uses the same batches. Returns the loader."""
    loader.set_epoch(0)
    return loader


def _saved_position(loader: Loader, checkpoint: str) -> tuple[int, int] | None:
    """Returns the epoch and the batch at which a run continues, or None if the checkpoint contains
    no position.

    Raises:
        ConfigError: as for :meth:`Loader.load_state_dict`.
    """
    path = os.path.join(checkpoint, _STATE_FILE)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return loader._position_of(json.load(file))


class _SkipPatch:
    """Replaces accelerate's ``skip_first_batches``, which supports only torch loaders.

    ``transformers`` imports the function into its trainer module, so the function is replaced in
    that module, from the start of the first concurrent training to the end of the last one. The
    replacement passes other data loaders to the original function.
    """

    def __init__(self) -> None:
        self._lock, self._training_count = threading.Lock(), 0

    def __enter__(self) -> None:
        trainer = _transformers(".trainer")
        with self._lock:
            self._training_count += 1
            if self._training_count > 1:
                return
            self._original_function = original_function = trainer.skip_first_batches

            def skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
                is_ours = isinstance(dataloader, Loader)
                return (
                    dataloader.skip_first_batches(num_batches)
                    if is_ours
                    else original_function(dataloader, num_batches)
                )

            self._replacement_function = trainer.skip_first_batches = skip_first_batches

    def __exit__(self, *_: Any) -> None:
        trainer = _transformers(".trainer")
        with self._lock:
            self._training_count -= 1
            if self._training_count == 0 and trainer.skip_first_batches is self._replacement_function:
                trainer.skip_first_batches = self._original_function


_skip_patch = _SkipPatch()
