"""Batches across requests, for inference servers."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Iterable

from ._error import ConfigError, WarpfeedError

if TYPE_CHECKING:
    from ._decoder import Decoded, Decoder, Pending, Picture

__all__ = ["Joined"]

#: A request: its pictures, and the future of their results.
_Request = tuple[list[Any], "Future[list[Any]]"]


class Joined:
    """Joins the pictures of several requests into batches for one function: :meth:`Decoder.joined`.

    One thread collects requests and begins to decode them, and another waits for the batches and calls
    the function. So the next batch is decoded while the function runs.
    """

    def __init__(self, decoder: Decoder, f: Callable[[Decoded], Any], max_delay_ms: float) -> None:
        if not callable(f):
            raise TypeError(f"{f!r} cannot be called")
        if not 0 <= max_delay_ms <= 60_000:
            raise ConfigError(f"max_delay_ms={max_delay_ms!r}: want 0 to 60000")
        self._decoder, self._f, self._delay = decoder, f, max_delay_ms / 1000
        self._most = decoder.max_batch
        self._waiting: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        # Two batches in progress keep the decoder and the function busy.
        self._decoding: queue.Queue[tuple[Pending | Exception, list[_Request]] | None] = queue.Queue(2)
        self._lock = threading.Lock()
        self._closed = False
        targets = {"collect": self._collect, "run": self._run}
        self._threads = [
            threading.Thread(target=target, name=f"warpfeed-{name}", daemon=True) for name, target in targets.items()
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, pictures: Iterable[Picture]) -> Future[list[Any]]:
        """Returns the future results of ``pictures``: what the function returned for each, or the
        :class:`WarpfeedError` of a bad picture. ``await asyncio.wrap_future(joined.submit(pictures))``
        does not block the event loop.

        Raises:
            ConfigError: for no picture, for more than ``max_batch``, and after :meth:`close`.
        """
        request: _Request = (list(pictures), Future())
        count = len(request[0])
        if not 1 <= count <= self._most:
            raise ConfigError(f"a request of {count} pictures: the decoder takes from 1 to {self._most}")
        with self._lock:
            if self._closed:
                raise ConfigError("requests are no longer joined: it is closed")
            self._waiting.put(request)
        return request[1]

    def close(self) -> None:
        """Ends the threads when all requests are answered. The decoder stays open."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Joined:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _collect(self) -> None:
        """Joins requests until a batch is full or its first request has waited long enough."""
        first: _Request | None = self._waiting.get()
        while first is not None:
            requests, count, after = [first], len(first[0]), None
            deadline = time.monotonic() + self._delay
            ended = False
            while count < self._most:
                try:
                    following = self._waiting.get(timeout=max(deadline - time.monotonic(), 0))
                except queue.Empty:
                    break
                if following is None:
                    ended = True
                    break
                if count + len(following[0]) > self._most:
                    after = following
                    break
                requests.append(following)
                count += len(following[0])
            self._begin(requests)
            if ended:
                break
            first = after or self._waiting.get()
        self._decoding.put(None)

    def _begin(self, requests: list[_Request]) -> None:
        # A request that was cancelled is left out.
        requests = [request for request in requests if request[1].set_running_or_notify_cancel()]
        if not requests:
            return
        begun: Pending | Exception
        try:
            begun = self._decoder.submit([picture for pictures, _ in requests for picture in pictures])
        except Exception as e:
            if len(requests) > 1 and isinstance(e, TypeError):
                # The wrong value belongs to one of the requests.
                for pictures, future in requests:
                    try:
                        self._decoding.put((self._decoder.submit(pictures), [(pictures, future)]))
                    except Exception as own:
                        self._decoding.put((own, [(pictures, future)]))
                return
            begun = e
        self._decoding.put((begun, requests))

    def _run(self) -> None:
        while (batch := self._decoding.get()) is not None:
            begun, requests = batch
            try:
                if isinstance(begun, Exception):
                    raise begun
                results = self._results(begun.wait())
            except BaseException as e:
                for _, future in requests:
                    future.set_exception(e)
                continue
            start = 0
            for pictures, future in requests:
                future.set_result(results[start : start + len(pictures)])
                start += len(pictures)

    def _results(self, decoded: Decoded) -> list[Any]:
        came = self._f(decoded)
        try:
            results = list(came)
        except TypeError:
            results = []
        if len(results) != len(decoded):
            found = f"{len(results)} results" if results else repr(type(came).__name__)
            raise WarpfeedError(f"transform: the function returned {found} for {len(decoded)} pictures", "transform")
        return [decoded.errors.get(place, result) for place, result in enumerate(results)]
