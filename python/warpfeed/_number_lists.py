"""Passes long lists of numbers to the extension module as chunks of bytes, so that an array of a
hundred million numbers is not converted to a list of Python objects."""

from __future__ import annotations

import operator
from typing import Any, Iterator

from ._error import ConfigError

CHUNK_LEN = 1 << 16


class Indices:
    """A list of indices. Iteration yields chunks of bytes, which contain ``uint64`` values.

    Attributes:
        values: a copy of the indices, which the caller cannot change.
    """

    _dtype = "uint64"
    #: The minimum value, and the first value above the range.
    _limits = (0, 1 << 64)
    _expected = "an index of 0 or more"
    #: What to do instead of passing a mask.
    _mask_advice = "the indices of a mask are numpy.flatnonzero(mask), or mask.nonzero().flatten() in torch"

    def __init__(self, name: str, values: Any) -> None:
        self._name, self.values = name, self._copy(values)

    @staticmethod
    def _copy(values: Any) -> Any:
        import numpy as np

        if hasattr(values, "cpu"):
            # NumPy cannot read tensors on a device.
            values = values.cpu()
        # `np.array` would warn, because tensors' `__array__` has no argument `copy`.
        return np.asarray(values).copy() if hasattr(values, "__array__") else _immutable_or_list(values)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[bytes]:
        import numpy as np

        for first in range(0, len(self.values), CHUNK_LEN):
            values = self.values[first : first + CHUNK_LEN]
            try:
                chunk = np.asarray(values)
                shape = "the shape is " + str(tuple(chunk.shape))
            except ValueError:
                chunk, shape = None, "the entries are lists of different lengths"
            if chunk is None or chunk.ndim != 1:
                raise TypeError(f"{self._name}: {shape}; expected a list of numbers")
            yield self._convert(first, chunk, values).tobytes()

    def to_list(self) -> list[int]:
        """Returns the numbers as Python integers.

        Raises:
            TypeError: if `values` is not a list of integers.
            ConfigError: if a number is out of range.
        """
        import numpy as np

        return [number for chunk in self for number in np.frombuffer(chunk, self._dtype).tolist()]

    def __repr__(self) -> str:
        return repr(self.values) if len(self) <= 100 else f"<{type(self.values).__name__} of {len(self)}>"

    def _convert(self, first: int, chunk: Any, values: Any) -> Any:
        """Checks the numbers of a chunk, and converts them to `_dtype`. `chunk` is `values` as an
        array, and `first` is the index of its first element in the list."""
        import numpy as np

        if chunk.dtype.kind == "b":
            raise TypeError(f"{self._name}: the values are True and False; {self._mask_advice}")
        if isinstance(values, (list, tuple)) or chunk.dtype.kind == "O":
            # NumPy hides wrong types: it converts True and False to numbers, and all numbers to
            # floats if one of them is a float.
            other = {kind for kind in set(map(type, values)) if kind is not int and not issubclass(kind, np.integer)}
            for index, value in enumerate(values, first):
                if other and type(value) in other:
                    self._check(index, value)
        smallest, end = self._limits
        if chunk.dtype.kind not in "iu":
            numbers = []
            for index, value in enumerate(values if isinstance(values, (list, tuple)) else chunk.tolist(), first):
                self._check(index, value)
                numbers.append(operator.index(value))
                if not smallest <= numbers[-1] < end:
                    raise ConfigError(f"{self._name}: entry {index} is {value}; expected {self._expected}")
            return np.array(numbers, dtype=self._dtype)
        # NumPy would compare int64 with uint64 as floats.
        if len(chunk) and not (smallest <= int(chunk.min()) and int(chunk.max()) < end):
            index = int(chunk.argmin()) if int(chunk.min()) < smallest else int(chunk.argmax())
            raise ConfigError(f"{self._name}: entry {first + index} is {chunk[index]}; expected {self._expected}")
        return chunk.astype(self._dtype, copy=False)

    def _check(self, index: int, value: Any) -> None:
        try:
            # An element of a bool tensor is not a `bool`, but a tensor.
            is_flag = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")
            if not is_flag:
                operator.index(value)
                return
        except TypeError:
            pass
        raise TypeError(f"{self._name}: entry {index} is {value!r}; expected a whole number")


class Labels(Indices):
    """A list of labels, which may be negative, as chunks of ``int64`` values."""

    _dtype = "int64"
    _limits = (-(1 << 63), 1 << 63)
    _expected = "a label that fits in 64 bits"
    _mask_advice = "expected whole numbers, such as numpy.asarray(mask).astype(int)"


class Floats(Indices):
    """A list of numbers, as chunks of ``float64`` values."""

    def _convert(self, first: int, chunk: Any, values: Any) -> Any:
        import numpy as np

        if chunk.dtype.kind not in "biuf":
            return np.array([float(value) for value in chunk.tolist()], dtype=np.float64)
        return chunk.astype(np.float64, copy=False)


class SampleSelection:
    """The samples that a loader delivers: its subset, or all samples of the dataset.

    Attributes:
        values: indices of the samples, in the order of the subset.
        total: number of samples in the dataset.
        restricts: whether the loader has a subset.
    """

    def __init__(self, subset: Any, total: int) -> None:
        self.values, self.total, self.restricts = range(total) if subset is None else subset, total, subset is not None
        self._sorted: Any = None

    def __contains__(self, id: int) -> bool:
        import numpy as np

        if not self.restricts:
            return 0 <= id < self.total
        if self._sorted is None:
            self._sorted = np.unique(np.asarray(self.values).astype(np.uint64))
        position = int(np.searchsorted(self._sorted, np.uint64(id)))
        return position < len(self._sorted) and int(self._sorted[position]) == id


def _immutable_or_list(values: Any) -> Any:
    return values if isinstance(values, (tuple, range)) else list(values)


def integers(name: str, values: Any, kind: type[Indices] = Indices) -> list[int]:
    """Converts a list, array or tensor to a list of Python integers.

    Raises:
        TypeError: if `values` does not consist of integers, for example because it is a mask or a
            string of digits.
        ConfigError: if a number is out of range.
    """
    expected = f"{name}: {values!r}; expected a list of whole numbers, such as [0, 1]"
    if isinstance(values, (str, bytes)):
        raise TypeError(expected)
    try:
        iter(values)
    except TypeError:
        raise TypeError(expected) from None
    return kind(name, values).to_list()
