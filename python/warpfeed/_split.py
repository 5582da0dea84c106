"""Splits a dataset, for example into training and validation samples."""

from __future__ import annotations

import os
from typing import Any, Iterable, NoReturn

from . import _options, _warpfeed
from ._error import ConfigError
from ._number_lists import Labels, integers
from ._trainers import Dataset

__all__ = ["split"]


def split(
    samples: int | Iterable[int] | Any,
    fractions: Iterable[float],
    seed: int,
    labels: Iterable[int] | None = None,
    stratify: bool = False,
    **unknown: NoReturn,
) -> list[list[int]]:
    """Splits samples at random. Returns the indices of each part, for ``Loader(..., subset=part)``.

    ::

        train, val = warpfeed.split("imagenet/train", [0.9, 0.1], seed=42, stratify=True)

    Args:
        samples: indices, a number of samples, or a dataset. A dataset is a path, an object such as
            :class:`Coco`, a Python dataset other than a list or an array, or the ``dataset`` of a
            loader. For the ``dataset`` of a loader, only the samples in the loader's ``subset`` are
            divided, and labels are read with the loader's options, such as ``classes``.
        fractions: the fraction of the samples in each part, for at most 8 parts. If the sum is less
            than 1, the remaining samples are in no part.
        seed: random seed. The split depends on no other random state.
        labels: one label per entry of ``samples``. If ``samples`` is the ``dataset`` of a loader,
            one label per sample of the whole dataset, including samples outside ``subset``. With
            labels, each class is divided separately.
        stratify: divides each class separately, like ``labels``, but reads the labels from the
            dataset. This reads every sample of a Python dataset.

    Raises:
        ConfigError: if there are no fractions or more than 8, if a fraction is not from 0 to 1, if
            the sum of the fractions exceeds 1, if there is not one label per sample, or if
            ``stratify`` is set together with ``labels`` or without a dataset.
        TypeError: for an unknown argument or a value of the wrong type.
        WarpfeedError: if the dataset cannot be opened, or a label cannot be read.
    """
    for name in unknown:
        raise _options.unknown_argument("split", name, ["fractions", "labels", "stratify"])
    for name, values in (("fractions", fractions), ("labels", labels)):
        # A string would be split into characters.
        if isinstance(values, (str, bytes)):
            raise TypeError(f"{name}={values!r}: expected a list of numbers")
    if labels is not None and stratify:
        raise ConfigError("pass either labels or stratify, not both")
    _options.reject_bytes("samples", samples)
    if isinstance(samples, Dataset):
        indices, total = [int(i) for i in samples.indices], samples._selection.total
        if stratify or labels is not None:
            all_labels = integers("labels", samples.labels() if labels is None else labels, Labels)
            if len(all_labels) != total:
                raise ConfigError(f"labels has {len(all_labels)} entries, but the dataset has {total} samples")
            labels = [all_labels[i] for i in indices]
    elif isinstance(samples, (str, os.PathLike)) or hasattr(samples, "_describe_source") or _is_dataset(samples):
        count, stored_labels = _warpfeed.labels(samples, stratify)
        indices, labels = list(range(count)), stored_labels if stratify else labels
    elif stratify:
        raise ConfigError(
            "stratify=True needs a dataset to read labels from: pass a path or loader.dataset, or pass labels instead"
        )
    else:
        if isinstance(samples, bool):
            raise TypeError(f"samples={samples!r}: expected a number of samples, a list of indices or a dataset")
        indices = list(range(samples)) if isinstance(samples, int) else integers("samples", samples)
    classes = None if labels is None else integers("labels", labels, Labels)
    if classes is not None and len(classes) != len(indices):
        raise ConfigError(f"labels has {len(classes)} entries, but there are {len(indices)} samples")
    return _warpfeed.split(indices, [float(s) for s in fractions], seed, classes)


def _is_dataset(samples: Any) -> bool:
    """Returns whether `samples` is a Python dataset, rather than a number or a list of indices."""
    if isinstance(samples, (int, list, tuple, range)) or hasattr(samples, "__array__") or hasattr(samples, "tolist"):
        return False
    if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__") or len(samples) == 0:
        return False
    first = samples[0]
    return not hasattr(first, "__index__")
