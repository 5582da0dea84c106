"""Checks of option values by type. Every error names the option and its value."""

from __future__ import annotations

import difflib
import operator
from typing import Any, Iterable, Mapping

from ._error import ConfigError

__all__ = ["check", "is_flag", "misspelt"]

_WHOLE = (
    "batch_size", "global_batch_size", "seed", "shuffle_window", "repeat", "rank", "world_size", "num_workers",
    "workers", "prefetch", "max_batch", "max_skipped", "retries", "memory_limit", "max_pixels", "max_sample_bytes",
    "shard_size",
)  # fmt: skip
_NUMBERS = ("timeout", "decode_share")
_FLAGS = (
    "copy", "drop_last", "balanced", "by_class_name", "keep_labels", "index", "unlabelled", "distributed", "pin_memory",
    "pinned", "mmap", "force", "keep_bad", "strict",
)  # fmt: skip
_WORDS = ("output", "last_batch", "decode_on", "on_error")
# A text is a sequence too, of its letters.
_LISTS = {"subset": "indices", "weights": "numbers", "classes": "names"}
_CALLED = ("order",)


def check(given: Mapping[str, Any], optional: Iterable[str]) -> None:
    """Checks the types of options; those that are ``optional`` may be None."""
    may_be_none = set(optional)
    for name, value in given.items():
        if value is None and name in may_be_none:
            continue
        if name in _WHOLE:
            _whole(name, value)
        elif name in _NUMBERS:
            _number(name, value)
        elif name in _FLAGS and not is_flag(value):
            raise TypeError(f"{name}={value!r}: want True or False")
        elif name in _WORDS and not isinstance(value, str):
            raise TypeError(f"{name}={value!r}: want a str")
        elif name in _LISTS and (isinstance(value, (str, bytes)) or not hasattr(value, "__iter__")):
            raise TypeError(f"{name}={value!r}: want a list of {_LISTS[name]}")
        elif name in _CALLED and not callable(value):
            raise TypeError(f"{name}={value!r}: want a function")
    if given.get("shuffle") is not None and not is_flag(given["shuffle"]):
        _whole("shuffle", given["shuffle"])
    if given.get("soft_labels") is not None:
        _soft_labels(given["soft_labels"])


def is_flag(value: Any) -> bool:
    """Whether this is a ``bool``, Python's or NumPy's."""
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy"


def _whole(name: str, value: Any) -> None:
    if is_flag(value) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name}={value!r}: want a whole number")
    if not 0 <= operator.index(value) < 1 << 64:
        raise ConfigError(f"{name}={value!r}: want a whole number from 0 to 2**64 - 1")


def _number(name: str, value: Any) -> None:
    try:
        number = float("nan") if isinstance(value, (str, bytes)) or is_flag(value) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if number != number:
        raise TypeError(f"{name}={value!r}: want a number")
    if number < 0:
        raise ConfigError(f"{name}={value!r}: want 0 or more")


def _soft_labels(value: Any) -> None:
    wanted = "want (classes, smoothing), such as (1000, 0.1)"
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"soft_labels={value!r}: {wanted}")
    try:
        _whole("classes", value[0])
        _number("smoothing", value[1])
    except (TypeError, ConfigError) as e:
        raise type(e)(f"soft_labels={value!r}: {e}; {wanted}") from None


def misspelt(name: str, known: Iterable[str]) -> str:
    """A question to add to the error about an unknown name."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
