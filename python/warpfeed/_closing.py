"""Closes loaders, decoders and dynamic batchers when the process exits.

Their threads may call Python code, such as a dataset or a user function, so the threads must end
before the interpreter shuts down. The wait for them is limited, because user code may never return.
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
_GRACE_SECONDS = 5.0


class Closable(Protocol):
    def close(self) -> None: ...
    def _begin_close(self) -> bool: ...
    def _running_callbacks(self) -> list[str]: ...


# Open objects by id, because iterating over a `WeakSet` is not thread-safe.
_open_objects: dict[int, weakref.ref[Closable]] = {}


def close_at_exit(closable: Closable) -> None:
    """Registers `closable` to be closed when the process exits, unless it is dropped earlier."""
    key, remove = id(closable), _open_objects.pop
    _open_objects[key] = weakref.ref(closable, lambda _: remove(key, None))


def _close_all() -> None:
    deadline = time.monotonic() + _GRACE_SECONDS
    closables = [closable for reference in list(_open_objects.values()) if (closable := reference()) is not None]
    pause = 0.001
    while closables:
        running = []
        for closable in closables:
            if closable._begin_close():
                closable.close()
            else:
                running.append(closable)
        closables = running
        if not closables or time.monotonic() > deadline:
            break
        time.sleep(pause)
        pause = min(2 * pause, 0.025)
    for closable in closables:
        names = ", ".join(closable._running_callbacks()) or "a thread"
        _log.warning("exiting anyway: %s is still running %.0f s after it was asked to stop", names, _GRACE_SECONDS)
    _warpfeed.wait_for_calls(deadline - time.monotonic())


atexit.register(_close_all)
