"""Dynamic batching for inference servers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Set
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Iterable

from ._closing import close_at_exit
from ._error import ConfigError, WarpfeedError, free_frames
from ._batch_transform import name_of

if TYPE_CHECKING:
    from . import _warpfeed
    from ._decoder import Decoded, InputImage

__all__ = ["DynamicBatcher"]


class DynamicBatcher:
    """Batches the images of concurrent requests and calls a function on each batch. Create one with
    :meth:`Decoder.dynamic_batcher`.

    The decoder starts the next batch while the function runs.
    """

    def __init__(
        self,
        core: _warpfeed.DynamicBatcherCore,
        decoded: Callable[[_warpfeed.Answer], Decoded],
        f: Callable[[Decoded], Any],
    ) -> None:
        self._core, self._decoded, self._f = core, decoded, f
        # Dropping this object must end the thread, so the thread holds only a weak reference to it.
        weakref.finalize(self, core.close).atexit = False
        self._thread = threading.Thread(target=_run, args=(weakref.ref(self), core), name="warpfeed-run", daemon=True)
        self._thread.start()
        close_at_exit(self)

    def submit(self, images: Iterable[InputImage]) -> Future[list[Any]]:
        """Returns a future with one result for each image: the result of the function, or the
        :class:`WarpfeedError` of a bad image. ``await asyncio.wrap_future(batcher.submit(images))``
        does not block the event loop. Cancelling the future cancels its request, unless its batch has begun.

        Raises:
            WarpfeedError: with kind ``"config"`` if ``images`` is empty or has more than
                ``max_batch`` items, if the batcher is closed, or if called in a process other than
                the decoder's; with kind ``"busy"`` if ``max_queued`` requests are already waiting
                for a batch.
            TypeError: if an image is neither bytes nor an array.
        """
        future: Future[list[Any]] = Future()
        number = self._core.submit(list(images), future)
        # A waiting request keeps this object alive. A finished one does not.
        waits = [self]

        def cancel(done: Future[list[Any]]) -> None:
            batcher = waits.pop()
            if done.cancelled() and batcher._core.cancel(number):
                # Wake `concurrent.futures.wait`. For requests that are in a batch, the thread does
                # so.
                done.set_running_or_notify_cancel()

        future.add_done_callback(cancel)
        return future

    def close(self) -> None:
        """Waits until all requests are finished, and closes the batcher. The decoder stays open.

        The batcher is also closed when its last reference is dropped after all requests have
        finished, and when the decoder is closed.
        """
        self._core.close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _ends(self) -> bool:
        """Starts to close this object. Returns whether its thread has ended."""
        self._core.close()
        return not self._thread.is_alive()

    def _called(self) -> list[str]:
        """Returns the names of the user's callbacks that are running."""
        return [f"dynamic_batcher({name_of(self._f)})"]

    def __enter__(self) -> DynamicBatcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, answer: _warpfeed.Answer, requests: list[tuple[Any, int]]) -> None:
        """Runs the function on a batch, and sets the results of its requests."""
        # A running future can no longer be cancelled.
        running = [future.set_running_or_notify_cancel() for future, _ in requests]
        results: list[Any] | BaseException
        try:
            results = self._results(self._decoded(answer))
        except BaseException as e:
            # The traceback's frames reference the batch. Clear them in case the caller keeps the
            # exception.
            results = e.with_traceback(e.__traceback__ and e.__traceback__.tb_next)
            free_frames(e)
        self._set_results(requests, running, results)

    @staticmethod
    def _set_results(requests: list[tuple[Any, int]], running: list[bool], results: list[Any] | BaseException) -> None:
        """Sets the results of each future that was not cancelled."""
        start = 0
        for (future, count), runs in zip(requests, running, strict=True):
            if runs and isinstance(results, list):
                future.set_result(results[start : start + count])
            elif runs:
                future.set_exception(results)
            start += count

    def _results(self, decoded: Decoded) -> list[Any]:
        returned = self._f(decoded)
        # The length of these types is not a number of results, even if it happens to equal the
        # number of images.
        if isinstance(returned, (tuple, str, bytes, bytearray, Mapping, Set)):
            kind = type(returned).__name__
            raise WarpfeedError(
                f"transform: the function returned a {kind}: expected a list, an array or a tensor with one result for "
                "each image; for several outputs return list(zip(*outputs))",
                "transform",
            )
        try:
            results = list(returned)
        except TypeError:
            results = []
        if len(results) != len(decoded):
            found = f"{len(results)} results" if results else repr(type(returned).__name__)
            raise WarpfeedError(f"transform: the function returned {found} for {len(decoded)} images", "transform")
        return [decoded.errors.get(place, result) for place, result in enumerate(results)]


def _run(of: weakref.ref[DynamicBatcher], core: _warpfeed.DynamicBatcherCore) -> None:
    """Processes requests until `core` is closed. Between two batches, it references neither a batch
    nor the object."""
    while (batch := core.next()) is not None:
        batcher = of()
        if batcher is None:
            _refuse(batch[1])
        else:
            batcher._answer(*batch)
        del batch, batcher


def _refuse(requests: list[tuple[Any, int]]) -> None:
    """Fails requests whose batcher was dropped."""
    for future, _ in requests:
        if future.set_running_or_notify_cancel():
            future.set_exception(ConfigError("config: the dynamic batcher of this request was dropped"))


def checked(f: Any, max_delay_ms: Any) -> float:
    """Checks the arguments of a dynamic batcher, and returns the delay in seconds.

    Raises:
        ConfigError: for a delay that is out of range.
        TypeError: for a function that cannot be called, or a delay that is not a number.
    """
    if not callable(f):
        raise TypeError(f"f={f!r}: expected a function")
    if isinstance(max_delay_ms, bool) or not isinstance(max_delay_ms, (int, float)):
        raise TypeError(f"max_delay_ms={max_delay_ms!r}: expected a number of milliseconds")
    if not 0 <= max_delay_ms <= 60_000:
        raise ConfigError(f"max_delay_ms={max_delay_ms!r}: expected 0 to 60000")
    return max_delay_ms / 1000
