"""Batches across requests, for inference servers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Set
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Iterable

from ._closing import close_at_exit
from ._error import ConfigError, WarpfeedError, free_frames
from ._transforms import name_of

if TYPE_CHECKING:
    from . import _warpfeed
    from ._decoder import Decoded, Image

__all__ = ["Joined"]


class Joined:
    """Joins the images of several requests into batches for one function: :meth:`Decoder.joined`.

    The decoder begins batches ahead of the function, so the next batch is decoded while the function runs.
    """

    def __init__(
        self, joined: _warpfeed.JoinedCore, decoded: Callable[[_warpfeed.Answer], Decoded], f: Callable[[Decoded], Any]
    ) -> None:
        self._core, self._decoded, self._f = joined, decoded, f
        # The thread ends with this object, which it must not keep.
        weakref.finalize(self, joined.close).atexit = False
        self._thread = threading.Thread(target=_run, args=(weakref.ref(self), joined), name="warpfeed-run", daemon=True)
        self._thread.start()
        close_at_exit(self)

    def submit(self, images: Iterable[Image]) -> Future[list[Any]]:
        """Returns the future results of ``images``: what the function returned for each, or the
        :class:`WarpfeedError` of a bad image. ``await asyncio.wrap_future(joined.submit(images))``
        does not block the event loop. Cancelling the future takes its request back, unless its batch has
        begun.

        Raises:
            WarpfeedError: of the kind ``"config"`` for no image, for more than ``max_batch``, after :meth:`close`,
                and in a process other than the decoder's; ``"busy"`` if ``max_queued`` requests wait for a batch.
            TypeError: for an image that is neither bytes nor an array.
        """
        future: Future[list[Any]] = Future()
        number = self._core.submit(list(images), future)
        # A request that waits keeps this object. One that is done must not.
        waits = [self]

        def take_back(done: Future[list[Any]]) -> None:
            joined = waits.pop()
            if done.cancelled() and joined._core.cancel(number):
                # Tells `concurrent.futures.wait`, which the thread does for requests with a batch.
                done.set_running_or_notify_cancel()

        future.add_done_callback(take_back)
        return future

    def close(self) -> None:
        """Waits until all requests are answered. The decoder stays open.

        Dropping the last reference, once all requests are answered, closes it too, and so does closing
        the decoder.
        """
        self._core.close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _ends(self) -> bool:
        """Begins to close it. Returns whether its thread has ended."""
        self._core.close()
        return not self._thread.is_alive()

    def _called(self) -> list[str]:
        """The functions of the program that are being called."""
        return [f"joined({name_of(self._f)})"]

    def __enter__(self) -> Joined:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, answer: _warpfeed.Answer, requests: list[tuple[Any, int]]) -> None:
        """Runs the function on a batch that has begun, and answers its requests."""
        # A future that runs can no longer be cancelled.
        running = [future.set_running_or_notify_cancel() for future, _ in requests]
        results: list[Any] | BaseException
        try:
            results = self._results(self._decoded(answer))
        except BaseException as e:
            # The frames hold the batch, and a program may keep the exception.
            results = e.with_traceback(e.__traceback__ and e.__traceback__.tb_next)
            free_frames(e)
        self._give(requests, running, results)

    @staticmethod
    def _give(requests: list[tuple[Any, int]], running: list[bool], results: list[Any] | BaseException) -> None:
        """Gives each future that was not cancelled the results of its images."""
        start = 0
        for (future, count), runs in zip(requests, running, strict=True):
            if runs and isinstance(results, list):
                future.set_result(results[start : start + count])
            elif runs:
                future.set_exception(results)
            start += count

    def _results(self, decoded: Decoded) -> list[Any]:
        came = self._f(decoded)
        # Their length is not the number of images, although it may happen to be equal.
        if isinstance(came, (tuple, str, bytes, bytearray, Mapping, Set)):
            kind = type(came).__name__
            raise WarpfeedError(
                f"transform: the function returned a {kind}: want a list, an array or a tensor with one result for each "
                "image; for several outputs return list(zip(*outputs))",
                "transform",
            )
        try:
            results = list(came)
        except TypeError:
            results = []
        if len(results) != len(decoded):
            found = f"{len(results)} results" if results else repr(type(came).__name__)
            raise WarpfeedError(f"transform: the function returned {found} for {len(decoded)} images", "transform")
        return [decoded.errors.get(place, result) for place, result in enumerate(results)]


def _run(of: weakref.ref[Joined], core: _warpfeed.JoinedCore) -> None:
    """Answers requests until `core` is closed. Between two batches it keeps no batch, and not the object."""
    while (batch := core.next()) is not None:
        joined = of()
        if joined is None:
            _refuse(batch[1])
        else:
            joined._answer(*batch)
        del batch, joined


def _refuse(requests: list[tuple[Any, int]]) -> None:
    """Answers requests that nobody can answer any more."""
    for future, _ in requests:
        if future.set_running_or_notify_cancel():
            future.set_exception(ConfigError("config: the object that joined this request was dropped"))


def checked(f: Any, max_delay_ms: Any) -> float:
    """The delay in seconds.

    Raises:
        ConfigError: for a delay that cannot be set.
        TypeError: for a function that cannot be called, or a delay that is not a number.
    """
    if not callable(f):
        raise TypeError(f"{f!r} cannot be called")
    if isinstance(max_delay_ms, bool) or not isinstance(max_delay_ms, (int, float)):
        raise TypeError(f"max_delay_ms={max_delay_ms!r}: want a number of milliseconds")
    if not 0 <= max_delay_ms <= 60_000:
        raise ConfigError(f"max_delay_ms={max_delay_ms!r}: want 0 to 60000")
    return max_delay_ms / 1000
