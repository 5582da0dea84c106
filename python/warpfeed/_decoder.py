"""Pictures that come in requests, for inference servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generator, Iterable, Union

from . import _batch, _checks, _options, _warpfeed
from ._augment import Augment
from ._closing import close_at_exit
from ._error import WarpfeedError
from ._report import Report, Stats

if TYPE_CHECKING:
    import asyncio

    import numpy as np

    #: An encoded picture: its bytes, or an array of them.
    Picture = Union[bytes, bytearray, memoryview, "np.ndarray[Any, np.dtype[np.uint8]]"]

__all__ = ["Decoded", "Decoder", "Pending"]


class Decoded:
    """The pictures of a request as one batch.

    Attributes:
        images: the pictures in their order, as the options of the decoder say.
        errors: a :class:`WarpfeedError` for each bad picture, by its place. The picture is black
            there.
    """

    def __init__(self, images: Any, native: Any) -> None:
        self.images = images
        self.errors: dict[int, Exception] = dict(native.errors())
        self._len = len(native)

    def __len__(self) -> int:
        return self._len

    def __repr__(self) -> str:
        return f"Decoded({len(self)} pictures, errors={self.errors!r})"


class Pending:
    """The answer to a request, while it is being made: ``pending.wait()`` or ``await pending``.

    The batch can be taken once. On a device it is ordered on the stream that is torch's current one
    where it is taken. Dropping the answer cancels the request, and so does the cancellation of the
    task that awaits it: what is not decoded by then stays so.
    """

    def __init__(self, decoder: Decoder, answer: _warpfeed.Answer) -> None:
        self._decoder, self._answer = decoder, answer
        self._awaited = False

    def wait(self) -> Decoded:
        """Waits for the batch. The interpreter is free meanwhile.

        Raises:
            WarpfeedError: of the kind ``"timeout"`` if all batches that the decoder has room for
                are alive for longer than ``timeout``, ``"capturing"`` if the current stream is
                being captured into a CUDA graph, ``"cuda"`` of the driver, and ``"config"`` if the
                batch was taken, the request was cancelled, or the decoder is closed.
        """
        return self._decoder._made(self._answer.wait(self._decoder._stream()))

    def cancel(self) -> None:
        """Cancels the request. A batch that was taken stays valid."""
        self._answer.cancel()

    def __await__(self) -> Generator[Any, None, Decoded]:
        return self._wait().__await__()

    async def _wait(self) -> Decoded:
        import asyncio

        if self._awaited:
            raise WarpfeedError("config: the batch is being waited for; one task takes it", "config")
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        if self._answer.when_ready(lambda: loop.call_soon_threadsafe(_finish, ready)):
            self._awaited = True
            try:
                await ready
            except BaseException:
                # The task was cancelled.
                self._answer.cancel()
                raise
            finally:
                self._awaited = False
        return self.wait()


def _finish(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class Decoder:
    """Decodes requests: a list of encoded pictures becomes one batch.

    ::

        decoder = warpfeed.Decoder(augment=Augment.eval(256, 224), device="cuda", dtype="f16", normalize="imagenet")
        decoded = decoder.decode([upload.read() for upload in uploads])
        scores = model(decoded.images)      # (n, 3, 224, 224), on torch's current stream
        for place, error in decoded.errors.items():
            print(error)                    # sample 3: decode: jpeg ends at byte 4096 in MCU 61 of 132

    The pixels are those of a :class:`Loader` with the same options. JPEGs are decoded by the device
    where it can, everything else (progressive and turned JPEGs, PNG, WebP and others) by threads, to
    the same bits. A bad picture spoils its own place only. Any number of threads may use one
    decoder, and while one request is on the device the next is prepared.

    Args:
        max_batch: the most pictures of a request.
        augment: what is done to each picture; ``Augment.eval(256, 224)`` by default.
        device, dtype, normalize, layout, output, copy: as for :class:`Loader`. On a device batches are
            ordered on the stream that is torch's current one where they are taken. If you keep as
            many batches as the decoder has slots, further ones are copies. Copies are yours, and not
            in :meth:`memory_plan`.
        workers: threads; 0 is one a core.
        prefetch: requests under way at a time; 3 by default. ``prefetch`` + 1 batches may share the
            decoder's memory on a device, one more in host memory. Answers that nobody has taken yet
            count, so take them about in the order of the requests, as ``asyncio.gather`` does.
        max_queued: requests that may be queued. One more is a :class:`WarpfeedError` of the kind
            ``"busy"``.
        decode_on: ``"gpu"``, ``"cpu"`` or ``"auto"``: where JPEGs are decoded if ``device`` is one.
        timeout: seconds that a request waits while all batches are alive; 30 by default.
        pinned: page-locked host memory.
        strict, memory_limit, max_pixels, max_sample_bytes: as for :class:`Loader`. A picture of more bytes
            than ``max_sample_bytes`` is let go at once, and is an error at its place.

    Raises:
        WarpfeedError: if an option cannot work.
    """

    def __init__(
        self,
        *,
        max_batch: int = 64,
        augment: Augment | None = None,
        device: Any = None,
        dtype: Any = None,
        normalize: Any = None,
        layout: Any = None,
        output: str | None = None,
        copy: bool | None = None,
        workers: int = 0,
        prefetch: int = 0,
        max_queued: int = 1024,
        decode_on: str = "gpu",
        timeout: float | None = None,
        pinned: bool = False,
        strict: bool = False,
        memory_limit: int | None = None,
        max_pixels: int | None = None,
        max_sample_bytes: int | None = None,
    ) -> None:
        _checks.check(locals(), ("copy", "output", "timeout", "memory_limit", "max_pixels", "max_sample_bytes"))
        output, ordinal, layout = _options.delivery(output, device, layout)
        if augment is not None and not isinstance(augment, Augment):
            raise TypeError(f"augment={augment!r}: want warpfeed.Augment")
        options: dict[str, Any] = {
            "batch_size": max_batch, "workers": workers, "prefetch": prefetch, "decode_on": decode_on, "pinned": pinned,
            "strict": strict,
            "layout": "nchw" if layout == "nchw" else "nhwc",
        }  # fmt: skip
        optional = {
            "augment": augment, "timeout": timeout, "memory_limit": memory_limit, "max_pixels": max_pixels,
            "max_sample_bytes": max_sample_bytes, "dtype": None if dtype is None else _options.dtype_name(dtype),
            "normalize": None if normalize is None else _options.normalization(normalize),
        }  # fmt: skip
        options.update((name, value) for name, value in optional.items() if value is not None)
        #: The number of the device that batches are on; None for host memory.
        self.device = ordinal
        self._output = output
        self._convert = {"torch": _batch.to_torch, "numpy": _batch.to_numpy, "dlpack": _batch.to_dlpack}[output]
        self._channels_last = layout == "channels_last"
        self._core = _warpfeed.DecoderCore(options, max_queued, copy, ordinal, self._stream())
        close_at_exit(self)

    def _stream(self) -> int:
        """The handle of torch's current stream on the device."""
        torch = _options.torch() if self._output == "torch" else None
        if self.device is None or torch is None or not torch.cuda.is_available():
            return 0
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def _made(self, native: Any) -> Decoded:
        return Decoded(self._convert(native, "image", self._channels_last), native)

    @property
    def max_batch(self) -> int:
        """The most pictures of a request."""
        return self._core.max_batch()

    def decode(self, pictures: Iterable[Picture]) -> Decoded:
        """Decodes ``pictures`` and waits for the batch: ``bytes``, or anything else with a buffer of
        bytes, such as ``memoryview`` and NumPy's arrays of ``uint8``. ``bytes`` are not copied. On a
        device the batch is ordered on torch's current stream, whose own work is not waited for.

        Raises:
            WarpfeedError: as :meth:`submit` and :meth:`Pending.wait`. A bad picture is an error at its
                place, not of the batch.
        """
        return self.submit(pictures).wait()

    def submit(self, pictures: Iterable[Picture]) -> Pending:
        """Begins to decode ``pictures``, and returns at once. ``await decoder.submit(pictures)``
        leaves the event loop free.

        Raises:
            WarpfeedError: of the kind ``"config"`` for no picture, for more than ``max_batch``, and
                in another process than the decoder's; ``"busy"`` if ``max_queued`` requests are
                queued.
            TypeError: for what has no buffer of bytes.
        """
        return Pending(self, self._core.submit(list(pictures)))

    def stats(self) -> Stats:
        """What the decoder has done so far: a dict, which prints as a table."""
        return Stats(*self._core.stats())

    def memory_plan(self) -> Report:
        """The memory of the decoder in bytes: a dict, which prints as a sentence."""
        return Report(*self._core.memory_plan())

    def close(self) -> None:
        """Ends all threads. Requests that are not answered become errors, and batches that are held
        stay valid."""
        self._core.close()

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
