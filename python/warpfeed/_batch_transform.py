"""Calls the user's functions on whole batches."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Mapping, Sequence, Union

from ._error import WarpfeedError

__all__ = ["BatchTransform", "Collate", "Fields"]

#: The fields of a batch: images and labels, or fields by name.
Fields = Union[tuple[Any, Any], dict[str, Any]]

#: Keyword-only parameters of a function that a loader fills in.
_PARAMETERS = ("epoch", "number", "seed")


class BatchTransform:
    """A chain of functions on whole batches."""

    def __init__(self, given: Any) -> None:
        if not callable(given) and (isinstance(given, (str, bytes)) or not isinstance(given, Sequence)):
            raise TypeError(f"batch_transform={given!r}: expected a function, or a list of functions")
        steps = [given] if callable(given) else list(given)
        self._steps: list[tuple[Callable[..., Any], list[str], str]] = []
        for place, f in enumerate(steps):
            if not callable(f):
                raise TypeError(f"batch_transform[{place}]={f!r}: expected a function")
            name = f"batch_transform[{place}] ({getattr(f, '__name__', None) or type(f).__name__})"
            self._steps.append((f, _wanted(f, name), name))

    def __bool__(self) -> bool:
        return bool(self._steps)

    def __call__(self, fields: Fields, seed: int, rank: int, batch: Any) -> Fields:
        """Calls the functions one after another, each with the result of the previous one.
        ``batch`` provides the properties of the batch.

        Raises:
            WarpfeedError: if a function raises an exception, which becomes the cause, or if it does
                not return a batch.
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
            # Also convert StopIteration, which would otherwise end the user's loop without an
            # error.
            except Exception as e:
                raise of_batch(name, epoch, number, batch.ids(), e) from e
        return fields


class Collate:
    """The user's function that builds the final form of a batch."""

    def __init__(self, f: Callable[[Any], Any]) -> None:
        self._f, self._name = f, f"collate ({name_of(f)})"

    def __call__(self, batch: Any) -> Any:
        """Calls the function.

        Raises:
            WarpfeedError: if the function raises an exception, which becomes the cause.
        """
        try:
            return self._f(batch)
        # Also convert StopIteration, which would otherwise end the user's loop without an error.
        except Exception as e:
            raise of_batch(self._name, batch.epoch, batch.number, batch.ids, e) from e


def name_of(f: Any) -> str:
    """Returns the name of a function, for error messages."""
    while hasattr(f, "func"):
        f = f.func
    return getattr(f, "__qualname__", None) or type(f).__qualname__


def of_batch(name: str, epoch: int, number: int, ids: list[int], e: Exception) -> WarpfeedError:
    """Returns the error for an exception of the function `name` on a batch."""
    shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
    place = f"{name} at batch {number} of epoch {epoch} (samples {shown})"
    return WarpfeedError(f"{place}: {type(e).__name__}: {e}", "transform")


def _wanted(f: Callable[..., Any], name: str) -> list[str]:
    """Returns the keyword-only parameters of `f` that the loader passes."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return []
    found = []
    for parameter in parameters:
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if parameter.name in _PARAMETERS:
            found.append(parameter.name)
        elif parameter.default is inspect.Parameter.empty:
            raise TypeError(
                f"{name} has the parameter {parameter.name!r}: expected one of 'epoch', 'number' (of the batch), 'seed'"
            )
    return found


def _seed(seed: int, epoch: int, number: int, rank: int, place: int) -> int:
    """Returns a 63-bit seed that differs for each batch, rank and function."""
    import hashlib  # slow to import, because it loads OpenSSL

    text = f"{seed} {epoch} {number} {rank} {place}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def _checked(result: Any) -> Fields:
    """Returns the result of a function if it is a batch."""
    if isinstance(result, Mapping):
        wrong = next((key for key in result if not isinstance(key, str)), None)
        if wrong is None and len(result):
            return dict(result)
        what = "an empty dict" if wrong is None else f"a dict with the key {wrong!r}"
    elif isinstance(result, (tuple, list)):
        if len(result) == 2:
            return result[0], result[1]
        what = f"a {type(result).__name__} of {len(result)}"
    else:
        shape = getattr(result, "shape", None)
        what = f"{type(result).__module__}.{type(result).__name__}".removeprefix("builtins.")
        what += "" if shape is None else f" of shape {tuple(shape)}"
    raise TypeError(f"the function returned {what}: expected (images, labels), or a dict of fields by name")
