"""Decoding of requests, for inference servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Generator, Iterable, Literal, NoReturn, Protocol, Union

from . import _delivery, _options, _warpfeed
from ._augment import Augment
from ._closing import close_at_exit
from ._error import ConfigError, WarpfeedError
from ._joined import Joined, checked
from ._report import Report, Stats
from ._types import Device, Dtype, Normalize

if TYPE_CHECKING:
    import asyncio

    import numpy as np

    class _Tensor(Protocol):
        """A tensor of torch."""

        def detach(self) -> Any: ...
        def permute(self, *axes: Any) -> Any: ...

    class _Pillows(Protocol):
        """An image of Pillow."""

        def getbands(self) -> tuple[str, ...]: ...
        def convert(self, mode: Any = ...) -> Any: ...

    #: An image: its encoded bytes, or its pixels.
    Image = Union[bytes, bytearray, memoryview, "np.ndarray[Any, np.dtype[np.uint8]]", _Tensor, _Pillows]

__all__ = ["Decoded", "Decoder", "Pending"]


class Decoded:
    """The images of a request as one batch.

    Attributes:
        images: the images, in the order of the images.
        errors: a :class:`WarpfeedError` for each bad image, by its position in the request. The
            image there is black.
    """

    def __init__(self, images: Any, native: Any, geometry: tuple[Any, Any] | None = None) -> None:
        self.images = images
        self._geometry = geometry
        self.errors: dict[int, Exception] = dict(native.errors())
        self._len = len(native)

    @property
    def geometry(self) -> Any:
        """Where each image lies in its image, (n, 2, 3) f32, as the field :class:`Geometry`; 0 for a bad
        image. :func:`boxes_to_source` maps boxes of the images back.

        Raises:
            ConfigError: for a decoder without ``geometry=True``.
        """
        return self._of_geometry()[0]

    @property
    def sizes(self) -> Any:
        """Height and width of each upright image, (n, 2) i32; 0 for a bad image.

        Raises:
            ConfigError: for a decoder without ``geometry=True``.
        """
        return self._of_geometry()[1]

    def _of_geometry(self) -> tuple[Any, Any]:
        if self._geometry is None:
            raise ConfigError("the decoder has no geometry: open it with geometry=True")
        return self._geometry

    def __len__(self) -> int:
        return self._len

    def __repr__(self) -> str:
        return f"Decoded({len(self)} images, errors={self.errors!r})"


class Pending:
    """The future answer to a request: ``pending.wait()`` or ``await pending``.

    The batch can be taken once. A batch on a device is ordered on torch's current stream at that
    moment. If that stream is being captured into a CUDA graph, this is an error, and the batch can
    be taken after the capture. Dropping the answer cancels the request, and so does cancelling the task that awaits it:
    images that no worker has begun are not decoded.
    """

    def __init__(self, decoder: Decoder, answer: _warpfeed.Answer) -> None:
        self._decoder, self._answer = decoder, answer
        self._awaited = False

    def wait(self) -> Decoded:
        """Waits for the batch without the interpreter's lock.

        Raises:
            WarpfeedError: of the kind ``"timeout"`` if all batches of the decoder have been alive
                for longer than ``timeout``; ``"capturing"`` if the current stream is being captured
                into a CUDA graph, after which a further call gives the batch; ``"cuda"`` for an error of the driver; ``"config"`` if the batch
                was already taken, the request was cancelled, or the decoder is closed.
        """
        return self._decoder._made(self._answer.wait(self._decoder._delivery.stream()))

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
    """Decodes requests: a list of encoded images becomes one batch.

    ::

        decoder = warpfeed.Decoder(augment=Augment.eval(256, 224), device="cuda", dtype="f16", normalize="imagenet")
        decoded = decoder.decode([upload.read() for upload in uploads])
        scores = model(decoded.images)      # (n, 3, 224, 224), on torch's current stream
        for place, error in decoded.errors.items():
            print(error)                    # sample 3: decode: jpeg ends at byte 4096 in MCU 61 of 132

    The pixels are those of a :class:`Loader` with the same options. On a device, JPEGs are decoded
    by the device if it can. Threads decode everything else to the same bits: progressive JPEGs,
    PNG, WebP and others. A bad image affects its own place only. Any number of threads may use
    one decoder, and the next request is prepared while one is on the device.

    Args:
        max_batch: maximum number of images in a request.
        augment: the augmentation of each image; ``Augment.eval(256, 224)`` by default.
        device: as for :class:`Loader`. Batches on a device are ordered on torch's current stream at
            the moment they are taken. A batch that is taken while the program holds another one is
            a copy, which :meth:`memory_plan` does not count.
        dtype, normalize, channels, background, convert_to_u8, layout, output, copy: as for :class:`Loader`.
        num_workers, pin_memory, strict: as for :class:`Loader`.
        prefetch: number of requests in progress; 0 is 3. ``prefetch`` + 1 batches may share the
            decoder's memory on a device, and one more in host memory. Untaken answers count
            too, so take answers roughly in the order of the requests, as ``asyncio.gather`` does.
        max_queued: maximum number of queued requests. One more is a :class:`WarpfeedError` of the
            kind ``"busy"``. :meth:`joined` has a queue of its own with the same limit.
        decode_on: ``"gpu"``, ``"cpu"`` or ``"auto"``: where JPEGs are decoded for batches on a
            device.
        timeout: seconds that a request waits while the program holds every batch; 30 by default.
        geometry: adds :attr:`Decoded.geometry` and :attr:`Decoded.sizes` to answers, to map predictions
            back to the images.
        memory_limit, max_pixels: as for :class:`Loader`.
        max_sample_bytes: largest image in bytes. A larger one is dropped at once, and is an error
            at its place.

    Raises:
        WarpfeedError: if an option cannot work.
        TypeError: for an argument that does not exist, or has the wrong type.
    """

    def __init__(
        self,
        *,
        max_batch: int = 64,
        augment: Augment | None = None,
        device: Device | None = None,
        dtype: Dtype | None = None,
        normalize: Normalize | None = None,
        channels: int | None = None,
        background: tuple[int, int, int] | None = None,
        convert_to_u8: bool = False,
        layout: Any = None,
        output: Literal["torch", "numpy", "dlpack"] | None = None,
        copy: bool | None = None,
        num_workers: int = 0,
        prefetch: int = 0,
        max_queued: int = 1024,
        decode_on: Literal["cpu", "gpu", "auto"] = "gpu",
        timeout: float | None = None,
        pin_memory: bool = False,
        strict: bool = False,
        geometry: bool = False,
        memory_limit: int | None = None,
        max_pixels: int | None = None,
        max_sample_bytes: int | None = None,
        **unknown: NoReturn,
    ) -> None:
        given, defaults = _options.given(Decoder.__init__, locals(), unknown), Decoder.__init__.__kwdefaults__ or {}
        self._arguments = {name: value for name, value in given.items() if value is not defaults[name]}
        if max_batch == 0:
            raise ConfigError("max_batch=0: a request has at least one image")
        self._delivery = _delivery.Delivery(output, device, layout, copy)
        #: The number of the CUDA device; None for host memory.
        self.device = self._delivery.device
        self._has_geometry, self._max_batch = geometry, max_batch
        options = {**_options.native(given, without=_delivery.OPTIONS), "layout": self._delivery.layout}
        self._core = _warpfeed.DecoderCore(options, self._delivery.native())
        close_at_exit(self)

    def _made(self, native: Any) -> Decoded:
        images = self._delivery.field(native, "image", True)
        if not self._has_geometry:
            return Decoded(images, native)
        geometry, sizes = (self._delivery.field(native, name, False) for name in ("geometry", "geometry.size"))
        return Decoded(images, native, (geometry, sizes))

    @property
    def max_batch(self) -> int:
        """Maximum number of images in a request."""
        return self._core.max_batch()

    def decode(self, originals: Iterable[Image]) -> Decoded:
        """Decodes ``images`` and waits for the batch.

        An image is ``bytes`` or any other buffer of bytes, such as a ``memoryview``; an array of
        pixels (height, width, 3) or (height, width) of ``uint8``, a tensor (3, height, width) of
        ``uint8``, or an image of Pillow. ``bytes`` are not copied. A batch on a device is
        ordered on torch's current stream, without waiting for the work of that stream.

        Raises:
            WarpfeedError: as :meth:`submit` and :meth:`Pending.wait`. A bad image is an error at
                its place and does not fail the batch.
            TypeError: as :meth:`submit`: a value that cannot be an image, such as a path, is a mistake
                of the program and fails the whole request.
        """
        return self.submit(originals).wait()

    def submit(self, originals: Iterable[Image]) -> Pending:
        """Begins to decode ``images`` and returns at once.

        ``await decoder.submit(images)`` does not block the event loop.

        Raises:
            WarpfeedError: of the kind ``"config"`` for no image, for more than ``max_batch``, and
                in a process other than the decoder's; ``"busy"`` if ``max_queued`` requests are
                queued.
            TypeError: for a value that cannot be an image, such as a path, an open file or None.
        """
        return Pending(self, self._core.submit(list(originals)))

    def joined(self, f: Callable[[Decoded], Any], *, max_delay_ms: float) -> Joined:
        """Joins the images of several requests into batches for ``f``, such as a model.

        A batch begins when no further request fits into ``max_batch`` images, or ``max_delay_ms`` after its
        first request was submitted. ``f(decoded)`` returns a list, an array or a tensor with one result for
        each image. For several outputs, such as boxes and scores, it returns ``list(zip(boxes, scores))``::

            joined = decoder.joined(lambda decoded: model(decoded.images).argmax(1), max_delay_ms=5)
            results = await asyncio.wrap_future(joined.submit(uploads))

        ``f`` runs on a thread of its own, for one batch at a time.

        Args:
            f: the function. An exception of it is the result of all requests of its batch.
            max_delay_ms: longest wait for further requests, in milliseconds, from 0 to 60000.

        Raises:
            ConfigError: for a delay out of range.
            TypeError: for a function that cannot be called, or a delay that is not a number.
        """
        core = self._core.joined(checked(f, max_delay_ms))

        def decoded(answer: _warpfeed.Answer) -> Decoded:
            return self._made(answer.wait(self._delivery.stream()))

        return Joined(core, decoded, f)

    def stats(self) -> Stats:
        """Returns the statistics so far: a dict, which prints as a table."""
        stats = Stats(*self._core.stats())
        stats["options"] = f"Decoder({', '.join(f'{name}={value!r}' for name, value in self._arguments.items())})"
        return stats

    def memory_plan(self) -> Report:
        """Returns the memory of the decoder in bytes: a dict, which prints as a sentence."""
        return Report(*self._core.memory_plan())

    def close(self) -> None:
        """Ends all threads. Unanswered requests become errors, also those of :meth:`joined`, and
        batches that the program holds stay valid."""
        self._core.close()

    def _ends(self) -> bool:
        """Begins to close the decoder. Returns whether its threads have ended."""
        return bool(self._core.ends())

    def _called(self) -> list[str]:
        """The functions of the program that are being called."""
        return []

    def __repr__(self) -> str:
        device = "" if self.device is None else f", device={self.device}"
        return f"Decoder(max_batch={self._max_batch}{device})"

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
