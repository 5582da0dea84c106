"""Attributes of a loader that trainers look for."""

from __future__ import annotations

import io
import json
import operator
import weakref
from typing import TYPE_CHECKING, Any, Iterator, NoReturn, Protocol, Sequence

from ._error import ConfigError
from ._numbers import Chosen

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BatchSampler", "Dataset", "Sampler", "Skipped", "decoded"]


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


class BatchSampler:
    """``loader.batch_sampler``. Lightning reads the attribute of loaders for validation."""

    def __iter__(self) -> NoReturn:
        raise ConfigError(
            "the batches of a loader cannot be sampled by another loader. accelerate's skip_first_batches takes only "
            "torch's loaders: call loader.skip_first_batches(n)"
        )


class _Samples(Protocol):
    """The part of a loader that a dataset needs."""

    @property
    def classes(self) -> list[str]: ...
    @property
    def class_to_idx(self) -> dict[str, int]: ...
    def sample(self, id: int) -> dict[str, Any]: ...
    def _labels(self, ids: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]: ...


class Dataset:
    """``loader.dataset``: the samples as they are stored, their number, and the classes.

    ``loader.dataset[id]`` is :meth:`Loader.sample` of the sample ``id``. A sample has one number
    everywhere, that of ``batch.ids``, also with ``subset``: the dataset then has only the samples of
    the subset, ``len(loader.dataset)`` of them, whose numbers are :attr:`indices`. A loop over the dataset
  goes through them.
    """

    def __init__(self, loader: _Samples, chosen: Chosen) -> None:
        self._loader, self._chosen = loader, chosen

    @property
    def indices(self) -> Sequence[int]:
        """The numbers of the samples, as in ``batch.ids``."""
        indices: Sequence[int] = self._chosen.values
        return indices

    @property
    def classes(self) -> list[str]:
        """Names of the classes by label."""
        return self._loader.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label of each class, as in torchvision's ``ImageFolder``."""
        return self._loader.class_to_idx

    def labels(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns the labels by the number of their sample, such as for class weights:
        ``labels()[batch.ids]`` are the labels of a batch. No image is read if the format has its
        labels apart.

        With ``subset`` the samples outside the subset have -1, and ``labels()[dataset.indices]`` are
        the labels of the subset.

        Raises:
            WarpfeedError: for a sample that has no label or cannot be read.
        """
        labels = self._loader._labels(self.indices)
        if not self._chosen.restricts:
            return labels
        import numpy as np

        all = np.full(self._chosen.total, -1, np.int64)
        all[np.asarray(self.indices).astype(np.int64)] = labels
        return all

    def _describe_source(self) -> NoReturn:
        raise TypeError(
            "loader.dataset has decoded samples. Pass the dataset of the loader itself; subset=loader.dataset.indices, or "
            "samples=loader.dataset.indices of pack, chooses the same samples"
        )

    def __getattr__(self, name: str) -> Any:
        # Attributes of torchvision's ImageFolder.
        instead = {"targets": "labels()", "samples": "labels() and [id]", "imgs": "labels() and [id]"}.get(name)
        advice = f"; use {instead}" if instead else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._loader.sample(int(id)) for id in self.indices)

    def __getitem__(self, id: int) -> dict[str, Any]:
        try:
            number = operator.index(id)
        except TypeError:
            raise TypeError(f"dataset[{id!r}]: want a whole number") from None
        total = self._chosen.total
        if not -total <= number < total:
            raise IndexError(f"sample {number} of a dataset of {total}")
        number %= total
        if number not in self._chosen:
            raise IndexError(
                f"sample {number} is not in the subset of {len(self)}; samples keep the numbers that they have in the "
                "whole dataset: dataset.indices has those of the subset"
            )
        return self._loader.sample(number)


class _Steps(_Epochs, Protocol):
    """The part of a loader that skipping needs."""

    @property
    def epoch(self) -> int: ...
    @property
    def dataset(self) -> Dataset: ...
    @property
    def batch_size(self) -> int | None: ...
    @property
    def sampler(self) -> Sampler: ...
    def __len__(self) -> int: ...
    def epoch_from(self, epoch: int, first: int) -> Iterator[Any]: ...


class Skipped:
    """A loader without the first batches of an epoch: :meth:`Loader.skip_first_batches`."""

    def __init__(self, loader: _Steps, count: int) -> None:
        self.loader, self._count = loader, count
        self.dataset, self.batch_size, self.sampler = loader.dataset, loader.batch_size, loader.sampler

    def __iter__(self) -> Iterator[Any]:
        return self.loader.epoch_from(self.loader.epoch, self._count)

    def __len__(self) -> int:
        return max(len(self.loader) - self._count, 0)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the loader's next ``iter``."""
        self.loader.set_epoch(epoch)


def decoded(name: str, content: bytes) -> Any:
    """The content of a stored field, decoded as the ending of its name says."""
    ending = name.rpartition(".")[2]
    try:
        if ending == "npy":
            import numpy as np

            return np.load(io.BytesIO(content), allow_pickle=False)
        if ending == "json":
            return json.loads(content)
        return content.decode() if ending == "txt" else content
    except (ValueError, EOFError) as e:
        raise ConfigError(f"field {name!r} is not {ending}: {e}") from e
