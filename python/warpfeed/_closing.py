"""Closes loaders and decoders when the process exits.

Their threads may read a Python dataset, so they must end before the interpreter does. The same
applies to threads of calls that Ctrl-C interrupted. A user function that does not return must not
keep the process alive.
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

#: Seconds that the program waits at its end, for all threads together.
_GRACE = 5.0


class Closable(Protocol):
    """A loader, a decoder or a dynamic batcher."""

    def close(self) -> None: ...
    def _ends(self) -> bool: ...
    def _called(self) -> list[str]: ...


# Open objects by address. This is a dict because listing a set of weak references is not
# thread-safe.
_open: dict[int, weakref.ref[Closable]] = {}


def close_at_exit(opened: Closable) -> None:
    """Registers `opened` to be closed when the process exits. The object may be dropped earlier."""
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
                # The threads have ended, so this call only logs the remaining messages.
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
        _log.warning("the program ends although %s has not returned %.0f s after the request to end", called, _GRACE)
    _warpfeed.wait_for_calls(until - time.monotonic())


atexit.register(_close_all)
