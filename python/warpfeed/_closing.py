"""Closes loaders and decoders when the process exits.

Threads of loaders and decoders may call into a Python dataset, so they must end before the
interpreter shuts down. The wait for them is limited, because a user function may never return.
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

#: Maximum total time in seconds to wait for threads at exit.
_GRACE = 5.0


class Closable(Protocol):
    """A loader, a decoder or a dynamic batcher."""

    def close(self) -> None: ...
    def _begin_close(self) -> bool: ...
    def _running_callbacks(self) -> list[str]: ...


# Open objects by id, because iterating over a `WeakSet` is not thread-safe.
_open: dict[int, weakref.ref[Closable]] = {}


def close_at_exit(opened: Closable) -> None:
    """Registers `opened` to be closed when the process exits, unless it is dropped earlier."""
    key, remove = id(opened), _open.pop
    _open[key] = weakref.ref(opened, lambda _: remove(key, None))


def _close_all() -> None:
    deadline = time.monotonic() + _GRACE
    opened = [result for reference in list(_open.values()) if (result := reference()) is not None]
    pause = 0.001
    while opened:
        waiting = []
        for closable in opened:
            if closable._begin_close():
                closable.close()
            else:
                waiting.append(closable)
        opened = waiting
        if not opened or time.monotonic() > deadline:
            break
        time.sleep(pause)
        pause = min(2 * pause, 0.025)
    for closable in opened:
        running = ", ".join(closable._running_callbacks()) or "a thread"
        _log.warning("exiting anyway: %s is still running %.0f s after it was asked to stop", running, _GRACE)
    _warpfeed.wait_for_calls(deadline - time.monotonic())


atexit.register(_close_all)
