"""The attributes of a loader that training frameworks access."""

from __future__ import annotations

import io
import json
import operator
import weakref
from typing import TYPE_CHECKING, Any, Iterator, NoReturn, Protocol, Sequence

from ._error import ConfigError
from ._number_lists import SampleSelection

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BatchSampler", "Dataset", "Sampler", "Skipped", "decoded"]


class _EpochLoader(Protocol):
    def set_epoch(self, epoch: int) -> None: ...
    def samples_of_rank(self) -> int: ...


class Sampler:
    """The type of ``loader.sampler``, for trainers that call ``set_epoch`` or read the length of
    the sampler."""

    def __init__(self, loader: _EpochLoader) -> None:
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
    """The type of ``loader.batch_sampler``, for Lightning, which reads this attribute during
    validation."""

    def __iter__(self) -> NoReturn:
        raise ConfigError(
            "batch_sampler: a different loader cannot sample the batches of this loader. accelerate's "
            "skip_first_batches supports only torch loaders; call loader.skip_first_batches(n) instead"
        )


class _SampleLoader(Protocol):
    @property
    def classes(self) -> list[str]: ...
    @property
    def class_to_idx(self) -> dict[str, int]: ...
    def sample(self, id: int) -> dict[str, Any]: ...
    def _labels(self, ids: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]: ...


class Dataset:
    """The type of ``loader.dataset``: the stored samples, their number, and the classes.

    ``loader.dataset[id]`` equals ``loader.sample(id)``. Indices have the same meaning as in
    ``batch.ids``. With a ``subset``, ``len(loader.dataset)`` is the size of the subset,
    :attr:`indices` lists its samples, a loop over the dataset yields only these samples, and an
    index outside the subset raises an ``IndexError``.
    """

    def __init__(self, loader: _SampleLoader, selection: SampleSelection) -> None:
        self._loader, self._selection = loader, selection

    @property
    def indices(self) -> Sequence[int]:
        """The indices of the samples in the subset, or of all samples, with the same meaning as in
        ``batch.ids``."""
        indices: Sequence[int] = self._selection.values
        return indices

    @property
    def classes(self) -> list[str]:
        """Class names, indexed by label."""
        return self._loader.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Labels by class name, as in torchvision's ``ImageFolder``."""
        return self._loader.class_to_idx

    def labels(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns the label of each sample of the whole dataset, for example to compute class
        weights. ``labels()[batch.ids]`` are the labels of a batch. If the format stores labels
        separately from images, no images are read.

        If the loader has a ``subset``, the entries of all other samples are -1, and
        ``labels()[dataset.indices]`` are the labels of the subset.

        Raises:
            WarpfeedError: if a sample has no label or cannot be read.
        """
        labels = self._loader._labels(self.indices)
        if not self._selection.restricts:
            return labels
        import numpy as np

        all_labels = np.full(self._selection.total, -1, np.int64)
        all_labels[np.asarray(self.indices).astype(np.int64)] = labels
        return all_labels

    def _describe_source(self) -> NoReturn:
        raise TypeError(
            "loader.dataset contains decoded samples. Pass the dataset that the loader reads; to select the same "
            "samples, pass subset=loader.dataset.indices, or for pack samples=loader.dataset.indices"
        )

    def __getattr__(self, name: str) -> Any:
        instead = {"targets": "labels()", "samples": "labels() and [id]", "imgs": "labels() and [id]"}.get(name)
        advice = f"; use {instead}" if instead else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._loader.sample(int(id)) for id in self.indices)

    def __getitem__(self, id: int) -> dict[str, Any]:
        try:
            index = operator.index(id)
        except TypeError:
            raise TypeError(f"dataset[{id!r}]: expected a whole number") from None
        total = self._selection.total
        if not -total <= index < total:
            raise IndexError(f"sample {index} is out of range: the dataset has {total} samples")
        index %= total
        if index not in self._selection:
            raise IndexError(
                f"sample {index} is not in the subset of {len(self)} samples; dataset.indices lists the indices of the "
                "subset, which refer to the whole dataset"
            )
        return self._loader.sample(index)


class _SkippableLoader(_EpochLoader, Protocol):
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
    """The result of :meth:`Loader.skip_first_batches`: a loader that leaves out the first ``count``
    batches of an epoch."""

    def __init__(self, loader: _SkippableLoader, count: int) -> None:
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
    """Decodes the content of a stored field, depending on the suffix of its name."""
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
