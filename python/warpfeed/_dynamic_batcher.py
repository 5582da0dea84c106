"""The dynamic batcher: combines the requests of an inference server into batches."""

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
    """Combines the images of concurrent requests into batches, and calls a function on each batch.
    Create it with :meth:`Decoder.dynamic_batcher`.

    The decoder decodes the next batch while the function runs.
    """

    def __init__(
        self,
        core: _warpfeed.DynamicBatcherCore,
        to_decoded: Callable[[_warpfeed.PendingResponse], Decoded],
        f: Callable[[Decoded], Any],
    ) -> None:
        self._core, self._to_decoded, self._f = core, to_decoded, f
        # The thread must not keep this object alive: dropping the object ends the thread.
        weakref.finalize(self, core.close).atexit = False
        self._thread = threading.Thread(target=_run, args=(weakref.ref(self), core), name="warpfeed-run", daemon=True)
        self._thread.start()
        close_at_exit(self)

    def submit(self, images: Iterable[InputImage]) -> Future[list[Any]]:
        """Submits images, and returns a future for the list of their results. For each image, the
        list contains the result of the function, or the :class:`WarpfeedError` if the image is bad.
        ``await asyncio.wrap_future(batcher.submit(images))`` does not block the event loop.
        Canceling the future cancels the request, unless decoding of its batch has already started.

        Raises:
            WarpfeedError: with kind ``"config"`` if ``images`` is empty or has more than
                ``max_batch`` items, if the batcher is closed, or if the decoder was opened in a
                different process; with kind ``"busy"`` if ``max_queued`` requests are already
                waiting for a batch.
            TypeError: as for :meth:`Decoder.submit`.
        """
        future: Future[list[Any]] = Future()
        request = self._core.submit(list(images), future)
        # Keep this object alive until the request is finished.
        keep_alive = [self]

        def cancel(done: Future[list[Any]]) -> None:
            batcher = keep_alive.pop()
            if done.cancelled() and batcher._core.cancel(request):
                # Wakes `concurrent.futures.wait`. (Otherwise, `_complete` does this.)
                done.set_running_or_notify_cancel()

        future.add_done_callback(cancel)
        return future

    def close(self) -> None:
        """Rejects further requests, and waits until all submitted requests are finished. A call
        from the batcher's own function does not wait. The decoder stays open.

        The batcher is also closed when the decoder is closed, or once the last reference to the
        batcher is gone and no requests are pending.
        """
        self._core.close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _begin_close(self) -> bool:
        """Begins to close the batcher without waiting. Returns whether its thread has ended."""
        self._core.close()
        return not self._thread.is_alive()

    def _running_callbacks(self) -> list[str]:
        """Returns the name of the user's function, which may be running."""
        return [f"dynamic_batcher({name_of(self._f)})"]

    def __enter__(self) -> DynamicBatcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _complete(self, response: _warpfeed.PendingResponse, requests: list[tuple[Any, int]]) -> None:
        """Calls the function on a batch, and resolves the futures of its requests."""
        running = [future.set_running_or_notify_cancel() for future, _ in requests]
        results: list[Any] | BaseException
        try:
            results = self._results(self._to_decoded(response))
        except BaseException as e:
            # A stored exception would keep the batch alive through this frame.
            results = e.with_traceback(e.__traceback__ and e.__traceback__.tb_next)
            free_frames(e)
        self._set_results(requests, running, results)

    @staticmethod
    def _set_results(requests: list[tuple[Any, int]], running: list[bool], results: list[Any] | BaseException) -> None:
        start = 0
        for (future, count), is_running in zip(requests, running, strict=True):
            if is_running and isinstance(results, list):
                future.set_result(results[start : start + count])
            elif is_running:
                future.set_exception(results)
            start += count

    def _results(self, decoded: Decoded) -> list[Any]:
        returned = self._f(decoded)
        # These types never contain one result per image, even if the length happens to match.
        if isinstance(returned, (tuple, str, bytes, bytearray, Mapping, Set)):
            kind = type(returned).__name__
            raise WarpfeedError(
                f"transform: the function returned a {kind}: expected a list, an array or a tensor with one result for "
                "each image; for several outputs, return list(zip(*outputs))",
                "transform",
            )
        try:
            results = list(returned)
        except TypeError:
            results = []
        if len(results) != len(decoded):
            actual = f"{len(results)} results" if results else repr(type(returned).__name__)
            raise WarpfeedError(f"transform: the function returned {actual} for {len(decoded)} images", "transform")
        return [decoded.errors.get(position, result) for position, result in enumerate(results)]


def _run(batcher_ref: weakref.ref[DynamicBatcher], core: _warpfeed.DynamicBatcherCore) -> None:
    """Completes the requests of each batch until the batcher is closed. While this function waits
    for a batch, it holds no reference to the previous batch or to the batcher."""
    while (batch := core.next()) is not None:
        batcher = batcher_ref()
        if batcher is None:
            _reject(batch[1])
        else:
            batcher._complete(*batch)
        del batch, batcher


def _reject(requests: list[tuple[Any, int]]) -> None:
    """Fails the requests of a batcher that was dropped."""
    for future, _ in requests:
        if future.set_running_or_notify_cancel():
            future.set_exception(ConfigError("config: the dynamic batcher of this request was dropped"))


def checked_delay(f: Any, max_delay_ms: Any) -> float:
    """Checks the arguments of :meth:`Decoder.dynamic_batcher`, and returns the delay in seconds.

    Raises:
        ConfigError: if the delay is out of range.
        TypeError: if `f` is not callable, or the delay is not a number.
    """
    if not callable(f):
        raise TypeError(f"f={f!r}: expected a function")
    if isinstance(max_delay_ms, bool) or not isinstance(max_delay_ms, (int, float)):
        raise TypeError(f"max_delay_ms={max_delay_ms!r}: expected a number of milliseconds")
    if not 0 <= max_delay_ms <= 60_000:
        raise ConfigError(f"max_delay_ms={max_delay_ms!r}: expected 0 to 60000")
    return max_delay_ms / 1000
