"""The user's functions on whole batches."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Mapping, Sequence, Union

from ._error import WarpfeedError

__all__ = ["Collate", "Fields", "Transforms"]

#: The fields of a batch: images and labels, or fields by name.
Fields = Union[tuple[Any, Any], dict[str, Any]]

#: Keyword-only parameters that a loader fills in.
_KNOWN = ("epoch", "number", "seed")


class Transforms:
    """A chain of functions on whole batches."""

    def __init__(self, given: Any) -> None:
        if not callable(given) and (isinstance(given, (str, bytes)) or not isinstance(given, Sequence)):
            raise TypeError(f"transforms={given!r}: want a function, or a list of functions")
        steps = [given] if callable(given) else list(given)
        self._steps: list[tuple[Callable[..., Any], list[str], str]] = []
        for place, f in enumerate(steps):
            if not callable(f):
                raise TypeError(f"transforms: {f!r} cannot be called")
            name = f"transforms[{place}] ({getattr(f, '__name__', None) or type(f).__name__})"
            self._steps.append((f, _wanted(f, name), name))

    def __bool__(self) -> bool:
        return bool(self._steps)

    def __call__(self, fields: Fields, seed: int, rank: int, batch: Any) -> Fields:
        """Calls the functions in turn. Each receives the result of the one before. ``batch`` has the
        facts of the batch.

        Raises:
            WarpfeedError: if a function raises an exception, which is the cause, or returns no batch.
        """
        epoch, number = batch.epoch, batch.number
        for place, (f, wanted, name) in enumerate(self._steps):
            extra: dict[str, int] = {}
            if wanted:
                known = {"epoch": epoch, "number": number}
                if "seed" in wanted:
                    known["seed"] = _seed(seed, epoch, number, rank, place)
                extra = {key: known[key] for key in wanted}
            try:
                fields = _checked(f(*fields, **extra) if isinstance(fields, tuple) else f(fields, **extra))
            # A StopIteration would end the loop without an error.
            except Exception as e:
                raise of_batch(name, epoch, number, batch.ids(), e) from e
        return fields


class Collate:
    """The user's function that gives a batch its final form."""

    def __init__(self, f: Callable[[Any], Any]) -> None:
        self._f, self._name = f, f"collate ({name_of(f)})"

    def __call__(self, batch: Any) -> Any:
        """Calls the function.

        Raises:
            WarpfeedError: if the function raises an exception, which is the cause.
        """
        try:
            return self._f(batch)
        # A StopIteration would end the loop without an error.
        except Exception as e:
            raise of_batch(self._name, batch.epoch, batch.number, batch.ids, e) from e


def name_of(f: Any) -> str:
    """The name of a function, for messages."""
    while hasattr(f, "func"):
        f = f.func
    return getattr(f, "__qualname__", None) or type(f).__qualname__


def of_batch(name: str, epoch: int, number: int, ids: list[int], e: Exception) -> WarpfeedError:
    """The error of the function `name` on a batch."""
    shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
    place = f"{name} at batch {number} of epoch {epoch} (samples {shown})"
    return WarpfeedError(f"{place}: {type(e).__name__}: {e}", "transform")


def _wanted(f: Callable[..., Any], name: str) -> list[str]:
    """The keyword-only parameters of `f` that a loader fills in."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return []
    found = []
    for parameter in parameters:
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if parameter.name in _KNOWN:
            found.append(parameter.name)
        elif parameter.default is inspect.Parameter.empty:
            raise TypeError(f"{name} wants {parameter.name!r}; a loader passes epoch, number (of the batch) and seed")
    return found


def _seed(seed: int, epoch: int, number: int, rank: int, place: int) -> int:
    """A seed of 63 bits, different for each batch, rank and transform."""
    import hashlib  # brings OpenSSL

    text = f"{seed} {epoch} {number} {rank} {place}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def _checked(came: Any) -> Fields:
    """The result of a transform, checked to be a batch."""
    if isinstance(came, Mapping):
        wrong = next((key for key in came if not isinstance(key, str)), None)
        if wrong is None and len(came):
            return dict(came)
        what = "an empty dict" if wrong is None else f"a dict with the key {wrong!r}"
    elif isinstance(came, (tuple, list)):
        if len(came) == 2:
            return came[0], came[1]
        what = f"a {type(came).__name__} of {len(came)}"
    else:
        shape = getattr(came, "shape", None)
        what = f"{type(came).__module__}.{type(came).__name__}".removeprefix("builtins.")
        what += "" if shape is None else f" of shape {tuple(shape)}"
    raise TypeError(f"it returned {what}; want (images, labels), or a dict of fields by name")
