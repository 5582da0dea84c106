"""Long lists of numbers for the native module.

They are passed as chunks of bytes, so an array of a hundred million numbers is never converted to a
list of Python objects.
"""

from __future__ import annotations

import operator
from typing import Any, Iterator

from ._error import ConfigError

#: Numbers per piece.
PIECE = 1 << 16


class Indices:
    """Non-negative whole numbers, as bytes of ``uint64``.

    Attributes:
        values: a copy of the numbers, which the caller cannot change.
    """

    _dtype = "uint64"
    _limits = (0, 1 << 64)
    _wanted = "an index from 0"
    #: Advice for a mask.
    _unmasked = "the indices of a mask are numpy.flatnonzero(mask), or mask.nonzero().flatten() in torch"

    def __init__(self, name: str, values: Any) -> None:
        self._name, self.values = name, self._copied(values)

    @staticmethod
    def _copied(values: Any) -> Any:
        import numpy as np

        if hasattr(values, "cpu"):
            # NumPy cannot read tensors on a device.
            values = values.cpu()
        # `np.array` warns for tensors, because they have no argument `copy`.
        return np.asarray(values).copy() if hasattr(values, "__array__") else _listed(values)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[bytes]:
        import numpy as np

        for first in range(0, len(self.values), PIECE):
            given = self.values[first : first + PIECE]
            try:
                piece = np.asarray(given)
                shape = "the shape is " + str(tuple(piece.shape))
            except ValueError:
                piece, shape = None, "the entries are lists of different lengths"
            if piece is None or piece.ndim != 1:
                raise TypeError(f"{self._name}: {shape}; expected a list of numbers")
            yield self._converted(first, piece, given).tobytes()

    def listed(self) -> list[int]:
        """Returns the numbers as Python integers.

        Raises:
            TypeError: if `values` is not a list of whole numbers.
            ConfigError: if a number is out of range.
        """
        import numpy as np

        return [number for piece in self for number in np.frombuffer(piece, self._dtype).tolist()]

    def __repr__(self) -> str:
        return repr(self.values) if len(self) <= 100 else f"<{type(self.values).__name__} of {len(self)}>"

    def _converted(self, first: int, piece: Any, given: Any) -> Any:
        """The numbers of `piece`, an array of the values `given`."""
        import numpy as np

        if piece.dtype.kind == "b":
            raise TypeError(f"{self._name}: the values are True and False; {self._unmasked}")
        if isinstance(given, (list, tuple)) or piece.dtype.kind == "O":
            # NumPy converts True and False among numbers to numbers, and all numbers to floats if one is a float.
            other = {kind for kind in set(map(type, given)) if kind is not int and not issubclass(kind, np.integer)}
            for place, value in enumerate(given, first):
                if other and type(value) in other:
                    self._check(place, value)
        least, end = self._limits
        if piece.dtype.kind not in "iu":
            numbers = []
            for place, value in enumerate(given if isinstance(given, (list, tuple)) else piece.tolist(), first):
                self._check(place, value)
                numbers.append(operator.index(value))
                if not least <= numbers[-1] < end:
                    raise ConfigError(f"{self._name}: entry {place} is {value}; expected {self._wanted}")
            return np.array(numbers, dtype=self._dtype)
        # Compared as Python integers, because NumPy compares signed and unsigned numbers of 64 bits as floats.
        if len(piece) and not (least <= int(piece.min()) and int(piece.max()) < end):
            place = int(piece.argmin()) if int(piece.min()) < least else int(piece.argmax())
            raise ConfigError(f"{self._name}: entry {first + place} is {piece[place]}; expected {self._wanted}")
        return piece.astype(self._dtype, copy=False)

    def _check(self, place: int, value: Any) -> None:
        """Raises an error if a value is not a whole number."""
        try:
            # An element of a tensor has the type of the tensor.
            flag = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")
            if not flag:
                operator.index(value)
                return
        except TypeError:
            pass
        raise TypeError(f"{self._name}: entry {place} is {value!r}; expected a whole number")


class Labels(Indices):
    """Signed whole numbers, as bytes of ``int64``."""

    _dtype = "int64"
    _limits = (-(1 << 63), 1 << 63)
    _wanted = "a label of 64 bits"
    _unmasked = "expected whole numbers, such as numpy.asarray(mask).astype(int)"


class Floats(Indices):
    """Numbers, as bytes of ``float64``."""

    def _converted(self, first: int, piece: Any, given: Any) -> Any:
        import numpy as np

        if piece.dtype.kind not in "biuf":
            return np.array([float(value) for value in piece.tolist()], dtype=np.float64)
        return piece.astype(np.float64, copy=False)


class Chosen:
    """The indices of the samples that a loader delivers, out of the `total` samples of its dataset.
    These are its subset, or all samples.

    Attributes:
        values: the indices, in the order of the subset.
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
        place = int(np.searchsorted(self._sorted, np.uint64(id)))
        return place < len(self._sorted) and int(self._sorted[place]) == id


def _listed(values: Any) -> Any:
    """Returns a list of the values, or the values themselves if they are immutable."""
    return values if isinstance(values, (tuple, range)) else list(values)


def whole(name: str, values: Any, kind: type[Indices] = Indices) -> list[int]:
    """Returns the whole numbers of any list, array or tensor.

    Raises:
        TypeError: if `values` is not a list of whole numbers, such as a mask, or a string of digits.
        ConfigError: if a number is out of range.
    """
    expected = f"{name}: {values!r}; expected a list of whole numbers, such as [0, 1]"
    if isinstance(values, (str, bytes)):
        raise TypeError(expected)
    try:
        iter(values)
    except TypeError:
        raise TypeError(expected) from None
    return kind(name, values).listed()
