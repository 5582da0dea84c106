"""Attributes of a loader that training frameworks read."""

from __future__ import annotations

import io
import json
import operator
import weakref
from typing import TYPE_CHECKING, Any, Iterator, NoReturn, Protocol, Sequence

from ._error import ConfigError
from ._number_lists import Chosen

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BatchSampler", "Dataset", "Sampler", "Skipped", "decoded"]


class _Epochs(Protocol):
    """The part of a loader that a sampler needs."""

    def set_epoch(self, epoch: int) -> None: ...
    def samples_of_rank(self) -> int: ...


class Sampler:
    """``loader.sampler``, for trainers that set the epoch there or read its length."""

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
    """``loader.batch_sampler``, for Lightning, which reads this attribute during validation."""

    def __iter__(self) -> NoReturn:
        raise ConfigError(
            "batch_sampler: a different loader cannot sample the batches of this loader. accelerate's "
            "skip_first_batches supports only loaders of torch; call loader.skip_first_batches(n)"
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

    ``loader.dataset[id]`` is :meth:`Loader.sample` of the sample ``id``. The index of a sample is
    the same everywhere, as in ``batch.ids``. With ``subset``, ``len(loader.dataset)`` is the size
    of the subset, :attr:`indices` are the indices of its samples, and a loop over the dataset
    yields these samples.
    """

    def __init__(self, loader: _Samples, chosen: Chosen) -> None:
        self._loader, self._chosen = loader, chosen

    @property
    def indices(self) -> Sequence[int]:
        """The indices of the samples, as in ``batch.ids``."""
        indices: Sequence[int] = self._chosen.values
        return indices

    @property
    def classes(self) -> list[str]:
        """Class names by label."""
        return self._loader.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label of each class, as in torchvision's ``ImageFolder``."""
        return self._loader.class_to_idx

    def labels(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns the labels, indexed by sample, for example to compute class weights.
        ``labels()[batch.ids]`` are the labels of a batch. If the format stores labels separately, no images are
        read.

        With ``subset``, samples outside the subset have -1, and ``labels()[dataset.indices]`` are
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
            "loader.dataset has decoded samples. Pass the dataset that the loader reads; "
            "subset=loader.dataset.indices, or for pack samples=loader.dataset.indices, chooses the same samples"
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
            raise TypeError(f"dataset[{id!r}]: expected a whole number") from None
        total = self._chosen.total
        if not -total <= number < total:
            raise IndexError(f"sample {number} of a dataset of {total}")
        number %= total
        if number not in self._chosen:
            raise IndexError(
                f"sample {number} is not in the subset of {len(self)} samples; dataset.indices has the numbers of the "
                "subset, which count in the whole dataset"
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
    """Decodes the content of a stored field by the suffix of its name."""
    suffix = name.rpartition(".")[2]
    try:
        if suffix == "npy":
            import numpy as np

            return np.load(io.BytesIO(content), allow_pickle=False)
        if suffix == "json":
            return json.loads(content)
        return content.decode() if suffix == "txt" else content
    except (ValueError, EOFError) as e:
        raise ConfigError(f"field {name!r} is not {suffix}: {e}") from e
