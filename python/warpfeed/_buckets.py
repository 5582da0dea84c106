"""Groups samples of similar lengths, or images of similar aspect ratios, into batches."""

from __future__ import annotations

import bisect
from typing import Any, Iterable

from . import _warpfeed
from ._error import ConfigError
from ._number_lists import Indices, integers

__all__ = ["Buckets", "SizeBuckets", "image_sizes"]


class _Lengths(Indices):
    """A list of lengths that fit into 32 bits."""

    _limits = (0, 1 << 32)
    _expected = "a length from 0 to 2**32 - 1"
    _mask_advice = "expected the length of each sample"


class Buckets:
    """The lengths of all samples, for the ``buckets`` option. Groups samples of similar lengths
    into batches.

    ::

        buckets = warpfeed.Buckets([len(text) for text in texts], [64, 128, 256])
        loader = warpfeed.Loader(
            "texts.tar", batch_size=32, shuffle=True, seed=1, drop_field=["image", "label"], buckets=buckets,
            fields={"tokens.npy": warpfeed.Ragged("i64", (), 512)}, collate=buckets.trim("tokens.npy"),
        )
        for batch in loader:
            tokens = batch["tokens.npy"]  # (32, 64), (32, 128), (32, 256) or (32, 512)

    The samples are sorted by bucket and then divided into batches. Without ``budget``, only a batch
    at the boundary between buckets contains samples from several buckets, and an incomplete batch
    contains the longest samples and is always the last batch. With ``shuffle``, each epoch shuffles
    the samples within each bucket, and then the batches.

    Args:
        lengths: length of each sample of the whole dataset, even with a ``subset``: integers below
            2**32. For large datasets, pass an array.
        bounds: maximum length of each bucket, in increasing order. Longer samples form an
            additional bucket.
        budget: maximum total length of the samples in a global batch, in the unit of the
            lengths, such as tokens or pixels. A batch contains as many samples of one bucket as fit
            into the budget, but at most ``batch_size``. Each sample counts as long as the upper
            bound of its bucket. Samples beyond the last bound count as long as the longest sample.
            The last batch of each bucket may be smaller, and ``drop_last`` drops it.

    The loader rejects buckets if the number of lengths differs from the number of samples, for a
    mixture, and together with ``repeat`` or a different option that determines the order.

    Raises:
        ConfigError: if the bounds are not in increasing order, or if a number is out of range.
        TypeError: if a value is not an integer.
    """

    def __init__(self, lengths: Iterable[int], bounds: Iterable[int], budget: int | None = None) -> None:
        if isinstance(lengths, (str, bytes)) or not hasattr(lengths, "__iter__"):
            raise TypeError(f"lengths={lengths!r}: expected the length of each sample")
        self._lengths = _Lengths("lengths", lengths)
        for _ in self._lengths:
            pass
        #: Maximum length of each bucket.
        self.bounds = integers("bounds", bounds, _Lengths)
        for lower, upper in zip(self.bounds, self.bounds[1:], strict=False):
            if lower >= upper:
                raise ConfigError(f"bounds={self.bounds}: {upper} follows {lower}; expected increasing numbers")
        #: Maximum of (number of samples in a global batch) x (bound of their bucket).
        self.budget = None if budget is None else integers("budget", [budget], _Lengths)[0]

    def _options(self) -> tuple[Any, ...]:
        return self._lengths, self.bounds, self.budget

    def __len__(self) -> int:
        return len(self._lengths)

    def __repr__(self) -> str:
        budget = "" if self.budget is None else f", budget={self.budget}"
        return f"Buckets({self._lengths!r}, {self.bounds}{budget})"

    def width(self, ids: Iterable[int]) -> int | None:
        """Returns the bound of the bucket that contains the longest of the samples ``ids``, or None
        if the longest sample exceeds the last bound.

        Raises:
            ValueError: if ``ids`` is empty.
        """
        longest = max((int(self._lengths.values[id]) for id in ids), default=None)
        if longest is None:
            raise ValueError(f"Buckets.width: ids={ids!r} has no samples; expected the samples of a batch: batch.ids")
        bucket = bisect.bisect_left(self.bounds, longest)
        return self.bounds[bucket] if bucket < len(self.bounds) else None

    def trim(self, *names: str) -> _Trim:
        """Returns a function for the ``collate`` option that shortens the second axis of the
        :class:`Ragged` fields ``names`` to the :meth:`width` of the batch. If the longest sample
        exceeds the last bound, the fields do not change. The fields become views of the batch, so
        nothing is copied.

        If a sample has more rows than :meth:`width`, the function raises a :class:`ConfigError`
        that names the sample. For batches on a device, a device-side assertion fails instead,
        because the host does not wait for the device."""
        if not names or not all(isinstance(name, str) for name in names):
            raise TypeError(f"trim{names!r}: expected names of fields, such as 'tokens'")
        return _Trim(self, names)


class _Sides(Indices):
    _limits = (0, 1 << 32)
    _expected = "a side from 0 to 2**32 - 1 pixels"
    _mask_advice = "expected the height and the width of each image"


def _sides(name: str, sizes: Any) -> tuple[_Sides, _Sides]:
    """Returns the heights and the widths of `sizes`, a list of (height, width) pairs or an array of
    shape (N, 2)."""
    import numpy as np

    array = np.asarray(sizes if hasattr(sizes, "__array__") else list(sizes))
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise TypeError(
            f"{name}: the shape is {tuple(array.shape)}, of {array.dtype}; expected a list of (height, width) in pixels"
        )
    sides = _Sides(name, array[:, 0]), _Sides(name, array[:, 1])
    for side in sides:
        for _ in side:
            pass
    return sides


class SizeBuckets:
    """The sizes of all images, for the ``buckets`` option. Groups images by aspect ratio, and gives
    each group its own image size, as in the training of diffusion models and vision-language
    models.

    ::

        sizes = [(1024, 1024), (832, 1216), (1216, 832)]
        buckets = warpfeed.SizeBuckets(warpfeed.image_sizes("photographs"), sizes, budget=32 << 20)
        loader = warpfeed.Loader(
            "photographs", batch_size=32, shuffle=True, seed=1, augment=warpfeed.Augment.cover(1024), buckets=buckets,
        )
        for images, labels in loader:
            ...  # (32, 3, 1024, 1024), (32, 3, 832, 1216) or (32, 3, 1216, 832), or fewer images

    An image belongs to the bucket with the closest aspect ratio. If several buckets have this
    aspect ratio, the image belongs to the largest of them that has no more pixels than the image,
    or to the smallest if all of them have more. Every batch contains images of one bucket. The last
    batch of each bucket may be smaller, and ``drop_last`` drops it. With ``shuffle``, each epoch
    shuffles the samples within each bucket, and then all batches. ``views`` keep their size.

    Args:
        images: (height, width) of the image of each sample of the whole dataset, even with a
            ``subset``. :func:`image_sizes` returns these sizes. For large datasets, pass an array
            of shape (N, 2).
        sizes: output (height, width) of each bucket, which replaces the output size of the loader's
            ``augment``.
        budget: maximum number of pixels in a global batch, so that batches of large images contain
            fewer images. ``batch_size`` is the maximum number of images.

    The loader rejects buckets if the number of images differs from the number of samples, if there
    are more than 256 sizes or a size is repeated, for a mixture, and together with ``repeat``,
    ``last_batch="pad"``, ``Augment.from_epoch``, ``Augment.mosaic``, ``Augment.copy_paste`` or a
    different option that determines the order.

    Raises:
        ConfigError: if a number is out of range.
        TypeError: if a value is not a pair of integers.
    """

    def __init__(self, images: Any, sizes: Any, budget: int | None = None) -> None:
        self._images = _sides("images", images)
        heights, widths = (side.to_list() for side in _sides("sizes", sizes))
        #: Output (height, width) of each bucket.
        self.sizes: list[tuple[int, int]] = list(zip(heights, widths, strict=True))
        #: Maximum number of pixels in a global batch.
        self.budget = None if budget is None else integers("budget", [budget], _Lengths)[0]

    def _options(self) -> tuple[Any, ...]:
        return self._images, self.sizes, self.budget

    def __len__(self) -> int:
        return len(self._images[0])

    def __repr__(self) -> str:
        budget = "" if self.budget is None else f", budget={self.budget}"
        return f"SizeBuckets(<{len(self)} images>, {self.sizes}{budget})"


def image_sizes(data: Any) -> list[tuple[int, int]]:
    """Reads each sample of a dataset and the header of its image, on all cores, and returns the
    (height, width) of each image after its EXIF orientation has been applied. An image that is
    missing or has an unreadable header has the size (0, 0); a loader reports the error when it
    loads the sample.

    Args:
        data: path, URL, Python dataset or object such as :class:`Coco`, as for :class:`Loader`,
            but not a mixture.

    Raises:
        WarpfeedError: if the dataset cannot be opened, or if a sample cannot be read.
        TypeError: if ``data`` is a list.
    """
    if isinstance(data, list):
        raise TypeError(
            f"image_sizes: data is a list of {len(data)} items; expected one dataset. To join datasets, use "
            "Concat([a, b]); for samples from Python, use an object with __len__ and __getitem__"
        )
    sizes: list[tuple[int, int]] = _warpfeed.image_sizes(data)
    return sizes


class _Trim:
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
