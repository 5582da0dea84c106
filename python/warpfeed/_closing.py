"""Closes loaders and decoders at the end of the program.

Their threads may read a Python source, so they must end before the interpreter does. So must those of
calls that Ctrl-C ended.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol

from . import _warpfeed

__all__ = ["close_at_exit"]


class Closable(Protocol):
    """A loader or a decoder."""

    def close(self) -> None: ...


# Open objects by address. A dict, because listing a set of weak references is not thread-safe.
_open: dict[int, weakref.ref[Closable]] = {}


def close_at_exit(opened: Closable) -> None:
    """Closes `opened` at the end of the program, unless it is dropped before."""
    key, leave = id(opened), _open.pop
    _open[key] = weakref.ref(opened, lambda _: leave(key, None))


def _close_all() -> None:
    for reference in list(_open.values()):
        opened = reference()
        if opened is not None:
            opened.close()
    _warpfeed.wait_for_calls()


atexit.register(_close_all)
