"""Attributes of a loader that trainers look for."""

from __future__ import annotations

import weakref
from typing import Protocol

__all__ = ["Dataset", "Sampler"]


class _Epochs(Protocol):
    """The part of a loader that a sampler needs."""

    def set_epoch(self, epoch: int) -> None: ...
    def samples_of_rank(self) -> int: ...


class Sampler:
    """``loader.sampler``, for trainers that set the epoch there or ask for its length."""

    def __init__(self, loader: _Epochs) -> None:
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the loader's next ``iter``."""
        loader = self._loader()
        if loader is not None:
            loader.set_epoch(epoch)

    def __len__(self) -> int:
        loader = self._loader()
        return 0 if loader is None else loader.samples_of_rank()


class Dataset:
    """``loader.dataset``: the number of samples, and the classes."""

    def __init__(self, samples: int, classes: list[str]) -> None:
        self._samples = samples
        self.classes = classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label of each class, as in torchvision's ``ImageFolder``."""
        return {name: label for label, name in enumerate(self.classes)}

    def __len__(self) -> int:
        return self._samples
