"""Calls the functions that the user passed as ``batch_transform`` and ``collate``."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Mapping, Sequence, Union

from ._error import WarpfeedError

__all__ = ["BatchTransform", "Collate", "Fields"]

#: The fields of a batch: images and labels, or fields by name.
Fields = Union[tuple[Any, Any], dict[str, Any]]

#: Keyword-only parameters that the loader passes if a function has them.
_PARAMETERS = ("epoch", "batch_index", "seed")


class BatchTransform:
    """The chain of functions that the ``batch_transform`` option lists."""

    def __init__(self, functions: Any) -> None:
        if not callable(functions) and (isinstance(functions, (str, bytes)) or not isinstance(functions, Sequence)):
            raise TypeError(f"batch_transform={functions!r}: expected a function, or a list of functions")
        steps = [functions] if callable(functions) else list(functions)
        self._steps: list[tuple[Callable[..., Any], list[str], str]] = []
        for index, f in enumerate(steps):
            if not callable(f):
                raise TypeError(f"batch_transform[{index}]={f!r}: expected a function")
            name = f"batch_transform[{index}] ({getattr(f, '__name__', None) or type(f).__name__})"
            self._steps.append((f, _requested_parameters(f, name), name))

    def __bool__(self) -> bool:
        return bool(self._steps)

    def __call__(self, fields: Fields, seed: int, rank: int, batch: Any) -> Fields:
        """Applies the functions in order. ``batch`` provides the properties of the batch.

        Raises:
            WarpfeedError: if a function raises an exception, which becomes the cause, or if a
                function does not return a batch.
        """
        epoch, batch_index = batch.epoch, batch.batch_index
        for index, (f, requested, name) in enumerate(self._steps):
            extra: dict[str, int] = {}
            if requested:
                available = {"epoch": epoch, "batch_index": batch_index}
                if "seed" in requested:
                    available["seed"] = _seed(seed, epoch, batch_index, rank, index)
                extra = {key: available[key] for key in requested}
            try:
                fields = _as_fields(f(*fields, **extra) if isinstance(fields, tuple) else f(fields, **extra))
            # This includes StopIteration, which would otherwise end the user's loop silently.
            except Exception as e:
                raise batch_error(name, epoch, batch_index, batch.ids(), e) from e
        return fields


class Collate:
    """The function of the ``collate`` option, which builds the final form of a batch."""

    def __init__(self, f: Callable[[Any], Any]) -> None:
        self._f, self._name = f, f"collate ({name_of(f)})"

    def __call__(self, batch: Any) -> Any:
        """Calls the function.

        Raises:
            WarpfeedError: if the function raises an exception, which becomes the cause.
        """
        try:
            return self._f(batch)
        except Exception as e:
            raise batch_error(self._name, batch.epoch, batch.batch_index, batch.ids, e) from e


def name_of(f: Any) -> str:
    while hasattr(f, "func"):
        f = f.func
    return getattr(f, "__qualname__", None) or type(f).__qualname__


def batch_error(name: str, epoch: int, batch_index: int, ids: list[int], e: Exception) -> WarpfeedError:
    """Returns the error to raise after the function `name` raised `e` for a batch."""
    samples = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
    location = f"{name} at batch {batch_index} of epoch {epoch} (samples {samples})"
    return WarpfeedError(f"{location}: {type(e).__name__}: {e}", "transform")


def _requested_parameters(f: Callable[..., Any], name: str) -> list[str]:
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return []
    requested = []
    for parameter in parameters:
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if parameter.name in _PARAMETERS:
            requested.append(parameter.name)
        elif parameter.default is inspect.Parameter.empty:
            raise TypeError(
                f"{name} requires the keyword-only parameter {parameter.name!r}, but the loader passes only 'epoch', "
                "'batch_index' and 'seed'; give the parameter a default"
            )
    return requested


def _seed(seed: int, epoch: int, batch_index: int, rank: int, index: int) -> int:
    """Returns a 63-bit seed, a hash that differs for each batch, rank and function."""
    import hashlib  # slow to import, because it loads OpenSSL

    text = f"{seed} {epoch} {batch_index} {rank} {index}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def _as_fields(result: Any) -> Fields:
    """Converts the result of a function to fields. Raises a TypeError if the result is neither a
    pair nor a dict of fields by name."""
    if isinstance(result, Mapping):
        invalid = next((key for key in result if not isinstance(key, str)), None)
        if invalid is None and len(result):
            return dict(result)
        description = "an empty dict" if invalid is None else f"a dict with the key {invalid!r}"
    elif isinstance(result, (tuple, list)):
        if len(result) == 2:
            return result[0], result[1]
        description = f"a {type(result).__name__} of {len(result)}"
    else:
        shape = getattr(result, "shape", None)
        description = f"{type(result).__module__}.{type(result).__name__}".removeprefix("builtins.")
        description += "" if shape is None else f" of shape {tuple(shape)}"
    raise TypeError(f"the function returned {description}: expected (images, labels), or a dict of fields by name")
