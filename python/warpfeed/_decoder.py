"""Pictures that come in requests, for inference servers."""

from __future__ import annotations

import asyncio
from typing import Any, Generator, Iterable

from . import _batch, _options, _warpfeed
from ._augment import Augment
from ._closing import close_at_exit
from ._report import Report, Stats

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
    """The answer to a request, while it is being made: ``pending.wait()`` or ``await pending``."""

    def __init__(self, decoder: Decoder, answer: _warpfeed.Answer) -> None:
        self._decoder, self._answer = decoder, answer

    def wait(self) -> Decoded:
        """Waits for the batch, which can be taken once. The interpreter is free meanwhile.

        Raises:
            WarpfeedError: as :meth:`Decoder.decode`.
        """
        return self._decoder._made(self._answer.wait())

    def __await__(self) -> Generator[Any, None, Decoded]:
        return self._wait().__await__()

    async def _wait(self) -> Decoded:
        # The tensor is made on the thread that awaits, on the stream that is current there.
        return self._decoder._made(await asyncio.to_thread(self._answer.wait))


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
        device, dtype, normalize, layout, output, copy: as for :class:`Loader`.
        workers: threads; 0 is one a core.
        prefetch: requests under way at a time; 3 by default. ``prefetch`` + 1 batches may be alive on a
            device, one more in host memory; a request beyond that waits for one to go.
        decode_on: ``"gpu"``, ``"cpu"`` or ``"auto"``: where JPEGs are decoded if ``device`` is one.
        timeout: seconds that a request waits for a batch to go.
        pinned: page-locked host memory.
        strict, memory_limit, max_pixels, max_sample_bytes: as for :class:`Loader`.

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
        decode_on: str = "gpu",
        timeout: float | None = None,
        pinned: bool = False,
        strict: bool = False,
        memory_limit: int | None = None,
        max_pixels: int | None = None,
        max_sample_bytes: int | None = None,
    ) -> None:
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
        self._core = _warpfeed.DecoderCore(options, copy, ordinal, self._stream())
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

    def decode(self, pictures: Iterable[bytes]) -> Decoded:
        """Decodes ``pictures``, which are ``bytes`` or ``bytearray``, and waits for the batch. On a
        device it is ordered on torch's current stream, whose own work is not waited for.

        Raises:
            WarpfeedError: for no picture, for more than ``max_batch``, if every batch that there is
                room for is held for longer than ``timeout``, and of the driver. A bad picture is no
                error of the batch.
        """
        return self.submit(pictures).wait()

    def submit(self, pictures: Iterable[bytes]) -> Pending:
        """Begins to decode ``pictures``, and returns at once. ``await decoder.submit(pictures)``
        leaves the event loop free.

        Raises:
            WarpfeedError: for no picture, and for more than ``max_batch``.
        """
        return Pending(self, self._core.submit(list(pictures), self._stream()))

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
