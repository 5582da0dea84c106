"""What is open when the program ends is closed before the interpreter goes: threads that read a Python
source need it."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol

__all__ = ["close_at_exit"]


class Closable(Protocol):
    """A loader or a decoder."""

    def close(self) -> None: ...


# By address. A dict, for a set of weak references may not be listed while other threads add to it.
_open: dict[int, weakref.ref[Closable]] = {}


def close_at_exit(opened: Closable) -> None:
    """Closes `opened` when the program ends, if it lives so long."""
    key, leave = id(opened), _open.pop
    _open[key] = weakref.ref(opened, lambda _: leave(key, None))


def _close_all() -> None:
    for reference in list(_open.values()):
        opened = reference()
        if opened is not None:
            opened.close()


atexit.register(_close_all)
