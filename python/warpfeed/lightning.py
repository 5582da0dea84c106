"""A data module for Lightning: ``import warpfeed.lightning``.

::

    augment = warpfeed.Augment.train(224)
    data = warpfeed.lightning.DataModule(
        train={"data": "imagenet/train", "shuffle": True, "seed": 42, "augment": augment, "drop_last": True},
        val={"data": "imagenet/val", "last_batch": "pad"},
        batch_size=256, normalize="imagenet",
    )
    lightning.Trainer(max_epochs=90).fit(model, data, ckpt_path="last")

A resumed run continues after the last batch of its checkpoint, even in the middle of an epoch.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Mapping

from ._batch import Batch, FieldBatch
from ._error import ConfigError
from ._loader import Loader

__all__ = ["DataModule"]

if TYPE_CHECKING:
    Base = object
# A trainer from `lightning` rejects modules from `pytorch_lightning`, and vice versa, so
# the base class comes from the package that is already imported.
elif "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import LightningDataModule as Base
else:
    try:
        from lightning.pytorch import LightningDataModule as Base
    except ImportError:
        from pytorch_lightning import LightningDataModule as Base


class DataModule(Base):
    """Opens the loaders that a trainer needs. ``distributed`` is set from the trainer, unless you
    pass it or ``rank``. If the trainer uses CUDA, ``device`` is also set, unless you pass it.

    Lightning saves the position of the training loader in every checkpoint, and restores this
    position when training resumes.

    Args:
        train, val, test, predict: the keyword arguments of the :class:`Loader` for that stage,
            including ``data``.
        options: arguments for all loaders. The arguments for a specific loader take precedence.

    Raises:
        ConfigError: if the arguments for a loader do not include ``data``.
    """

    def __init__(
        self,
        *,
        train: Mapping[str, Any] | None = None,
        val: Mapping[str, Any] | None = None,
        test: Mapping[str, Any] | None = None,
        predict: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._loaders: dict[str, Loader] = {}
        self._given: dict[str, dict[str, Any]] = {}
        for stage, own in {"train": train, "val": val, "test": test, "predict": predict}.items():
            if own is None:
                # Lightning detects a missing loader by checking whether this hook is overridden, so
                # restore the hook of the base class.
                name = f"{stage}_dataloader"
                setattr(self, name, getattr(super(), name))
                continue
            values = {**options, **own}
            if "data" not in values:
                raise ConfigError(f"{stage}={dict(own)!r}: expected the arguments of a Loader, including 'data'")
            self._given[stage] = values

    def train_dataloader(self) -> Any:
        """Opens the loader for training."""
        return self._open("train")

    def val_dataloader(self) -> Any:
        """Opens the loader for validation."""
        return self._open("val")

    def test_dataloader(self) -> Any:
        """Opens the loader for testing."""
        return self._open("test")

    def predict_dataloader(self) -> Any:
        """Opens the loader for prediction."""
        return self._open("predict")

    def _open(self, stage: str) -> Loader:
        values = dict(self._given[stage])
        trainer = getattr(self, "trainer", None)
        if trainer is not None:
            if "rank" not in values:
                values.setdefault("distributed", trainer.world_size > 1)
            device = trainer.strategy.root_device
            if device.type == "cuda":
                values.setdefault("device", device)
        # If the module is reused with a different trainer, Lightning requests the loader again.
        previous = self._loaders.pop(stage, None)
        if previous is not None:
            previous.close()
        loader = self._loaders[stage] = Loader(values.pop("data"), **values)
        return loader

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        """Returns the batch itself if it is already on the device, so that it keeps properties such
        as ``batch.valid``. Otherwise, Lightning moves the batch, and the result has only the
        fields."""
        if isinstance(batch, (Batch, FieldBatch)):
            values = batch if isinstance(batch, Batch) else batch.values()
            # The value of "views" is a list of arrays.
            arrays = [array for value in values for array in (value if isinstance(value, (list, tuple)) else [value])]
            if all(array.device == device for array in arrays if hasattr(array, "device")):
                return batch
        return super().transfer_batch_to_device(batch, device, dataloader_idx)  # type: ignore[misc]

    def teardown(self, stage: str) -> None:
        """Closes all loaders."""
        for loader in self._loaders.values():
            loader.close()
        self._loaders.clear()
