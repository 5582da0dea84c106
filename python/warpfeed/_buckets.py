"""Groups samples of similar lengths into batches."""

from __future__ import annotations

import bisect
from typing import Any, Iterable

from ._error import ConfigError
from ._number_lists import Indices, integers

__all__ = ["Buckets"]


class _Lengths(Indices):
    """A list of lengths that fit into 32 bits."""

    _limits = (0, 1 << 32)
    _expected = "a length from 0 to 2**32 - 1"
    _mask_advice = "expected the length of each sample"


class Buckets:
    """The lengths of all samples, for the option ``buckets``, which groups samples of similar
    lengths into batches.

    ::

        buckets = warpfeed.Buckets([len(text) for text in texts], [64, 128, 256])
        loader = warpfeed.Loader(
            "texts.tar", batch_size=32, shuffle=True, seed=1, drop_field=["image", "label"], buckets=buckets,
            fields={"tokens.npy": warpfeed.Ragged("i64", (), 512)}, collate=buckets.trim("tokens.npy"),
        )
        for batch in loader:
            tokens = batch["tokens.npy"]  # (32, 64), (32, 128), (32, 256) or (32, 512)

    The samples are sorted by bucket and then divided into batches, so a batch contains samples from
    two buckets only at the boundary between them. With ``shuffle``, each epoch shuffles the samples
    within each bucket, and then the batches. An incomplete batch contains the longest samples, and
    is always the last batch.

    Args:
        lengths: length of each sample of the whole dataset, even with a ``subset``: integers below
            2**32. For large datasets, pass an array.
        bounds: maximum length of each bucket, in increasing order. Longer samples form an
            additional bucket.
        budget: maximum total length of the samples in a global batch, in the unit of the lengths,
            such as tokens or pixels. A batch contains as many samples of one bucket as fit into the
            budget, but at most ``batch_size``. Each sample is charged the bound of its bucket.
            Samples beyond the last bound are charged the length of the longest sample. The last
            batch of each bucket may be smaller, and ``drop_last`` drops it.

    Raises:
        ConfigError: if the bounds do not increase, or if a number is out of range.
        TypeError: if a value is not an integer.
    """

    def __init__(self, lengths: Iterable[int], bounds: Iterable[int], budget: int | None = None) -> None:
        if isinstance(lengths, (str, bytes)) or not hasattr(lengths, "__iter__"):
            raise TypeError(f"lengths={lengths!r}: expected the length of each sample")
        self._lengths = _Lengths("lengths", lengths)
        for _ in self._lengths:
            pass  # Iterating checks every element.
        #: Maximum length of each bucket.
        self.bounds = integers("bounds", bounds, _Lengths)
        for before, after in zip(self.bounds, self.bounds[1:], strict=False):
            if before >= after:
                raise ConfigError(f"bounds={self.bounds}: {after} follows {before}; expected increasing numbers")
        #: Maximum of (number of samples in a batch) x (bound of their bucket).
        self.budget = None if budget is None else integers("budget", [budget], _Lengths)[0]

    def __len__(self) -> int:
        return len(self._lengths)

    def __repr__(self) -> str:
        budget = "" if self.budget is None else f", budget={self.budget}"
        return f"Buckets({self._lengths!r}, {self.bounds}{budget})"

    def width(self, ids: Iterable[int]) -> int | None:
        """Returns the bound of the bucket that contains the longest of the samples ``ids``, or None
        if the longest sample exceeds the last bound."""
        longest = max(int(self._lengths.values[id]) for id in ids)
        bucket = bisect.bisect_left(self.bounds, longest)
        return self.bounds[bucket] if bucket < len(self.bounds) else None

    def trim(self, *names: str) -> _Trim:
        """Returns a function for the option ``collate`` that shortens the second axis of the
        :class:`Ragged` fields ``names`` to the :meth:`width` of the batch. All batches of a bucket
        then have the same shape. The fields become views of the batch, so nothing is copied.

        If a sample has more rows than :meth:`width`, the function raises a :class:`ConfigError`
        that names the sample. For batches on a device, a device-side assertion fails instead,
        because the host does not wait for the device."""
        if not names or not all(isinstance(name, str) for name in names):
            raise TypeError(f"trim{names!r}: expected names of fields, such as 'tokens'")
        return _Trim(self, names)


class _Trim:
    """The function that :meth:`Buckets.trim` returns."""

    def __init__(self, buckets: Buckets, names: tuple[str, ...]) -> None:
        self._buckets, self._names = buckets, names

    def __call__(self, batch: Any) -> Any:
        width = self._buckets.width(batch.ids)
        for name in self._names:
            if f"{name}.count" not in batch:
                raise ConfigError(
                    f"trim: the loader has no ragged field {name!r}; add fields={{{name!r}: Ragged('i64', (), 512)}}"
                )
            if width is not None:
                self._check(name, batch[f"{name}.count"], batch.ids, width)
                batch[name] = batch[name][:, :width]
        return batch

    def _check(self, name: str, counts: Any, ids: list[int], width: int) -> None:
        """Raises an error if a sample has more than `width` rows."""
        if getattr(counts, "is_cuda", False):
            import torch

            torch._assert_async((counts <= width).all(), f"{name!r} has more rows than its length in Buckets")
            return
        row = int(counts.argmax())
        if int(counts[row]) > width:
            length = int(self._buckets._lengths.values[ids[row]])
            raise ConfigError(
                f"{name!r} of sample {ids[row]} has {int(counts[row])} rows, but its length in Buckets is {length}"
            )
