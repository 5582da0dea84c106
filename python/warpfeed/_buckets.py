"""Batches of samples of similar lengths."""

from __future__ import annotations

import bisect
from typing import Any, Iterable

from ._error import ConfigError
from ._numbers import Indices, whole

__all__ = ["Buckets"]


class _Lengths(Indices):
    """Lengths of 32 bits, which the native part takes as indices."""

    _limits = (0, 1 << 32)
    _wanted = "a length from 0 to 2**32 - 1"
    _unmasked = "want the length of each sample"


class Buckets:
    """Lengths of samples for the option ``buckets``, which puts samples of similar lengths into the same
    batches.

    ::

        buckets = warpfeed.Buckets([len(text) for text in texts], [64, 128, 256])
        loader = warpfeed.Loader(
            "texts.tar", batch_size=32, shuffle=1, without=["image", "label"], buckets=buckets,
            fields={"tokens.npy": warpfeed.Rows("i64", (), 512)}, collate=buckets.trim("tokens.npy"),
        )
        for batch in loader:
            tokens = batch["tokens.npy"]  # (32, 64), (32, 128), (32, 256) or (32, 512)

    The buckets follow one another, and this list is cut into batches, so only a batch at the border of
    two buckets has samples of both. With ``shuffle``, each epoch shuffles the samples within each bucket
    and then the batches. A last batch that is not full stays the last one, and has the longest samples.

    Args:
        lengths: the length of each sample of the dataset, also with a ``subset``; whole numbers below 2**32.
            For many samples pass an array.
        bounds: lengths at which a bucket ends, in increasing order. Longer samples have a bucket of their own.

    Raises:
        ConfigError: for bounds that do not increase, and numbers out of range.
        TypeError: for something other than whole numbers.
    """

    def __init__(self, lengths: Iterable[int], bounds: Iterable[int]) -> None:
        if isinstance(lengths, (str, bytes)) or not hasattr(lengths, "__iter__"):
            raise TypeError(f"lengths: {lengths!r}, want the length of each sample")
        self._lengths = _Lengths("lengths", lengths)
        for _ in self._lengths:
            pass  # Every piece is checked.
        #: Lengths at which a bucket ends.
        self.bounds = whole("bounds", bounds, _Lengths)
        for before, after in zip(self.bounds, self.bounds[1:], strict=False):
            if before >= after:
                raise ConfigError(f"bounds={self.bounds}: {after} follows {before}, and bounds must increase")

    def __len__(self) -> int:
        return len(self._lengths)

    def __repr__(self) -> str:
        return f"Buckets({self._lengths!r}, {self.bounds})"

    def width(self, ids: Iterable[int]) -> int | None:
        """Returns the bound of the bucket of the longest of the samples ``ids``, or None if that sample is longer
        than the last bound."""
        longest = max(int(self._lengths.values[number]) for number in ids)
        place = bisect.bisect_left(self.bounds, longest)
        return self.bounds[place] if place < len(self.bounds) else None

    def trim(self, *names: str) -> _Trim:
        """Returns a function for the option ``collate``, which cuts the second axis of the :class:`Rows` fields
        ``names`` to :meth:`width`. The fields become views of the batch, so nothing is copied, and there are only
        as many shapes as buckets.

        A sample with more rows than the cut leaves is a :class:`ConfigError` that names it. For batches on a device
        it is a failed assertion of the device, because the program does not wait for the device."""
        if not names or not all(isinstance(name, str) for name in names):
            raise TypeError(f"trim{names!r}: want names of fields, such as 'tokens'")
        return _Trim(self, names)


class _Trim:
    """The function that :meth:`Buckets.trim` returns."""

    def __init__(self, buckets: Buckets, names: tuple[str, ...]) -> None:
        self._buckets, self._names = buckets, names

    def __call__(self, batch: Any) -> Any:
        width = self._buckets.width(batch.ids)
        for name in self._names:
            if f"{name}.count" not in batch:
                raise ConfigError(f"the loader has no field {name!r} of rows: fields={{{name!r}: Rows('i64', (), 512)}}")
            if width is not None:
                self._check(name, batch[f"{name}.count"], batch.ids, width)
                batch[name] = batch[name][:, :width]
        return batch

    def _check(self, name: str, counts: Any, ids: list[int], width: int) -> None:
        """Refuses rows that would be cut off."""
        if getattr(counts, "is_cuda", False):
            import torch

            torch._assert_async((counts <= width).all(), f"{name!r} has more rows than the lengths of Buckets say")
            return
        place = int(counts.argmax())
        if int(counts[place]) > width:
            length = int(self._buckets._lengths.values[ids[place]])
            raise ConfigError(
                f"{name!r} of sample {ids[place]} has {int(counts[place])} rows, and its length in Buckets is {length}"
            )
