"""Closes loaders and decoders at the end of the program.

Their threads may read a Python source, so they must end before the interpreter does. So must those of
calls that Ctrl-C ended. A function of the program that does not return must not keep the program alive.
"""

from __future__ import annotations

import atexit
import logging
import time
import weakref
from typing import Protocol

from . import _warpfeed

__all__ = ["close_at_exit"]

_log = logging.getLogger("warpfeed")

#: Seconds that the end of the program waits for all threads together.
_GRACE = 5.0


class Closable(Protocol):
    """A loader or a decoder."""

    def close(self) -> None: ...
    def _ends(self) -> bool: ...
    def _called(self) -> list[str]: ...


# Open objects by address. A dict, because listing a set of weak references is not thread-safe.
_open: dict[int, weakref.ref[Closable]] = {}


def close_at_exit(opened: Closable) -> None:
    """Closes `opened` at the end of the program, unless it is dropped before."""
    key, leave = id(opened), _open.pop
    _open[key] = weakref.ref(opened, lambda _: leave(key, None))


def _close_all() -> None:
    until = time.monotonic() + _GRACE
    opened = [found for reference in list(_open.values()) if (found := reference()) is not None]
    pause = 0.001
    while opened:
        waiting = []
        for one in opened:
            if one._ends():
                # Only its messages are left.
                one.close()
            else:
                waiting.append(one)
        opened = waiting
        if not opened or time.monotonic() > until:
            break
        time.sleep(pause)
        pause = min(2 * pause, 0.025)
    for one in opened:
        called = ", ".join(one._called()) or "a thread"
        _log.warning("the program ends while %s has not returned, %.0f s after it was asked to end", called, _GRACE)
    _warpfeed.wait_for_calls(until - time.monotonic())


atexit.register(_close_all)
