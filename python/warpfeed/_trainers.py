"""What trainers look for at a loader."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._loader import Loader

__all__ = ["Dataset", "Sampler"]


class Sampler:
    """What trainers look for at ``loader.sampler``."""

    def __init__(self, loader: Loader) -> None:
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        """As :meth:`Loader.set_epoch`."""
        loader = self._loader()
        if loader is not None:
            loader.set_epoch(epoch)

    def __len__(self) -> int:
        loader = self._loader()
        return 0 if loader is None else loader.samples_of_rank()


class Dataset:
    """What trainers look for at ``loader.dataset``: the number of samples, and the classes."""

    def __init__(self, samples: int, classes: list[str]) -> None:
        self._samples = samples
        self.classes = classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class, as torchvision's ``ImageFolder`` has it."""
        return {name: label for label, name in enumerate(self.classes)}

    def __len__(self) -> int:
        return self._samples
