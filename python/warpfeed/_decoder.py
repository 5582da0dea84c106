"""The decoder for inference servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Generator, Iterable, Literal, NoReturn, Protocol, Union

from . import _delivery, _options, _other_names, _warpfeed
from ._augment import Augment
from ._closing import close_at_exit
from ._error import ConfigError, WarpfeedError
from ._dynamic_batcher import DynamicBatcher, checked_delay
from ._report import Report, Stats
from ._types import Device, Dtype, Normalize

if TYPE_CHECKING:
    import asyncio

    import numpy as np

    class _Tensor(Protocol):
        """A torch tensor."""

        def detach(self) -> Any: ...
        def permute(self, *axes: Any) -> Any: ...

    class _PillowImage(Protocol):
        """A Pillow image."""

        def getbands(self) -> tuple[str, ...]: ...
        def convert(self, mode: Any = ...) -> Any: ...

    #: The encoded bytes of an image, or its pixels.
    InputImage = Union[bytes, bytearray, memoryview, "np.ndarray[Any, np.dtype[np.uint8]]", _Tensor, _PillowImage]

__all__ = ["Decoded", "Decoder", "Pending"]


class Decoded:
    """The decoded images of a request, as one batch.

    Attributes:
        images: the decoded images, in the order of the request.
        errors: the :class:`WarpfeedError` of each bad image, by the image's position in the
            request. The decoded image at that position is black.
    """

    def __init__(self, images: Any, native: Any, geometry: tuple[Any, Any] | None = None) -> None:
        self.images = images
        self._geometry = geometry
        self.errors: dict[int, Exception] = dict(native.errors())
        self._len = len(native)

    @property
    def geometry(self) -> Any:
        """The matrix that maps each source image to its output image, f32 of shape (n, 2, 3), as
        in the field :class:`Geometry`. The matrix of a bad image is all zeros.
        :func:`boxes_to_source` maps boxes in the output images back.

        Raises:
            ConfigError: if the decoder was opened without ``geometry=True``.
        """
        return self._require_geometry()[0]

    @property
    def source_sizes(self) -> Any:
        """Height and width of each source image after its EXIF rotation, i32 of shape (n, 2). Both
        are zero for a bad image.

        Raises:
            ConfigError: if the decoder was opened without ``geometry=True``.
        """
        return self._require_geometry()[1]

    def _require_geometry(self) -> tuple[Any, Any]:
        if self._geometry is None:
            raise ConfigError("the decoder has no geometry; open it with geometry=True")
        return self._geometry

    def __len__(self) -> int:
        return self._len

    def __repr__(self) -> str:
        return f"Decoded({len(self)} images, errors={self.errors!r})"


class Pending:
    """The future result of a request. Call ``pending.wait()`` or ``await pending`` to get the
    batch.

    The batch can be taken only once. Taking a device batch makes torch's current stream wait until
    the batch is ready, which is not possible while the stream is being captured into a CUDA graph.
    The request is canceled if this object is dropped, or if the task that awaits this object is
    canceled.
    """

    def __init__(self, decoder: Decoder, response: _warpfeed.PendingResponse) -> None:
        self._decoder, self._response = decoder, response
        self._awaited = False

    def wait(self) -> Decoded:
        """Waits for the batch and returns it. Releases the GIL while waiting.

        Raises:
            WarpfeedError: with kind ``"timeout"`` if all batches of the decoder have been in use
                for longer than ``held_batches_timeout``; with kind ``"capturing"`` while the
                current stream is being captured into a CUDA graph (call again after the capture to
                get the batch); with kind ``"cuda"`` if the driver reports an error; with kind
                ``"config"`` if the batch was already taken, if the request was canceled, if the
                decoder was closed before it decoded the batch, or if the decoder was opened in a
                different process.
        """
        return self._decoder._to_decoded(self._response.wait(self._decoder._delivery.stream()))

    def cancel(self) -> None:
        """Cancels the request. A batch that was already taken stays valid."""
        self._response.cancel()

    def __await__(self) -> Generator[Any, None, Decoded]:
        return self._wait().__await__()

    async def _wait(self) -> Decoded:
        import asyncio

        if self._awaited:
            raise WarpfeedError("config: another task already awaits this batch", "config")
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        if self._response.when_ready(lambda: loop.call_soon_threadsafe(_finish, ready)):
            self._awaited = True
            try:
                await ready
            except BaseException:
                self._response.cancel()
                raise
            finally:
                self._awaited = False
        return self.wait()


def _finish(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class Decoder(_other_names.EarlierNames):
    """Decodes batches of images on request: a list of encoded images becomes one batch.

    ::

        decoder = warpfeed.Decoder(augment=Augment.eval(256, 224), device="cuda", dtype="f16", normalize="imagenet")
        decoded = decoder.decode([upload.read() for upload in uploads])
        scores = model(decoded.images)      # (n, 3, 224, 224), on torch's current stream
        for position, error in decoded.errors.items():
            print(error)                    # sample 3: decode: jpeg ends at byte 4096 in MCU 61 of 132

    The pixels are identical to the batches of a :class:`Loader` with the same options. With
    ``device="cuda"``, the device decodes the JPEGs that it supports, and CPU threads decode all
    other images, such as progressive JPEGs, PNG and WebP. The results are bit-identical. A bad
    image does not affect the other images. Any number of threads may share a decoder. The next
    request is prepared while the device decodes the current request.

    Args:
        max_batch: maximum number of images in a request.
        num_workers: as for :class:`Loader`.
        max_in_flight: maximum number of requests that are processed at the same time; 3 by default.
            At most ``max_in_flight`` + 1 device batches, or ``max_in_flight`` + 2 host batches, can
            share the decoder's memory. These include results that have not been taken, so take
            results roughly in the order of the requests.
        max_queued: maximum number of queued requests. If the queue is full, a request raises a
            :class:`WarpfeedError` with kind ``"busy"``. :meth:`dynamic_batcher` has its own queue
            with the same limit.
        augment: augmentation of each image; ``Augment.eval(256, 224)`` by default.
        dtype, normalize, layout, channels, background, convert_to_u8: as for :class:`Loader`.
        geometry: adds :attr:`Decoded.geometry` and :attr:`Decoded.source_sizes` to results, to map
            predictions back to the source images.
        device: as for :class:`Loader`. Taking a device batch makes torch's current stream wait
            until the batch is ready.
        output, pin_memory: as for :class:`Loader`.
        copy: True copies every batch, and False copies none. By default, fields of at most 64 KiB
            are copied, and a whole batch is copied if an earlier batch that was not copied is still
            alive. :meth:`memory_plan` does not include copies.
        decode_on: where the JPEGs of device batches are decoded: ``"gpu"`` (the default), ``"cpu"``
            or ``"auto"``.
        strict: as for :class:`Loader`.
        held_batches_timeout: number of seconds that a request waits while all batches are in use;
            30 by default.
        memory_limit, max_pixels: as for :class:`Loader`.
        max_sample_bytes: maximum size of an encoded image in bytes. A larger image is not decoded
            and produces an error at its position.

    Raises:
        ConfigError: if an option has an unsupported value.
        WarpfeedError: if the decoder cannot be opened, for example because it would exceed the
            memory.
        TypeError: for an unknown argument or a value of the wrong type.
    """

    def __init__(
        self,
        *,
        max_batch: int = 64,
        num_workers: int | None = None,
        max_in_flight: int | None = None,
        max_queued: int = 1024,
        augment: Augment | None = None,
        dtype: Dtype | None = None,
        normalize: Normalize | None = None,
        layout: Any = None,
        channels: int | None = None,
        background: tuple[int, int, int] | None = None,
        convert_to_u8: bool = False,
        geometry: bool = False,
        device: Device | None = None,
        output: Literal["torch", "numpy", "dlpack"] | None = None,
        copy: bool | None = None,
        pin_memory: bool = False,
        decode_on: Literal["cpu", "gpu", "auto"] = "gpu",
        strict: bool = False,
        held_batches_timeout: float | None = None,
        memory_limit: int | None = None,
        max_pixels: int | None = None,
        max_sample_bytes: int | None = None,
        **unknown: NoReturn,
    ) -> None:
        values = _options.checked(Decoder.__init__, locals(), unknown)
        defaults = Decoder.__init__.__kwdefaults__ or {}
        self._arguments = {name: value for name, value in values.items() if value is not defaults[name]}
        if max_batch == 0:
            raise ConfigError("max_batch=0: expected at least one image in a request")
        self._delivery = _delivery.Delivery(output, device, layout, copy)
        #: Index of the CUDA device; None for host memory.
        self.device = self._delivery.device
        self._has_geometry, self._max_batch = geometry, max_batch
        options = {**_options.to_native(values, leave_out=_delivery.OPTIONS), "layout": self._delivery.layout}
        self._core = _warpfeed.DecoderCore(options, self._delivery.native())
        close_at_exit(self)

    def _to_decoded(self, native: Any) -> Decoded:
        images = self._delivery.field(native, "image", True)
        if not self._has_geometry:
            return Decoded(images, native)
        geometry, sizes = (self._delivery.field(native, name, False) for name in ("geometry", "geometry.size"))
        return Decoded(images, native, (geometry, sizes))

    @property
    def max_batch(self) -> int:
        """Maximum number of images in a request."""
        return self._core.max_batch()

    def decode(self, images: Iterable[InputImage]) -> Decoded:
        """Decodes ``images`` and waits for the batch.

        An image is ``bytes`` or a different bytes-like object, such as a ``memoryview``; a
        ``uint8`` array of shape (height, width, 3), or (height, width) for a gray image; a
        ``uint8`` tensor of shape (3, height, width), or (1, height, width) or (height, width) for a
        gray image; or a Pillow image. ``bytes`` are not copied. A device batch is ready for use on
        torch's current stream.

        Raises:
            WarpfeedError: as for :meth:`submit` and :meth:`Pending.wait`. A bad image does not
                raise: its error is in ``errors`` of :class:`Decoded`.
            TypeError: as for :meth:`submit`. A value that cannot be an image, such as a path, is a
                bug in the calling code and fails the whole request.
        """
        return self.submit(images).wait()

    def submit(self, images: Iterable[InputImage]) -> Pending:
        """Starts decoding ``images`` and returns immediately.

        ``await decoder.submit(images)`` does not block the event loop.

        Raises:
            WarpfeedError: with kind ``"config"`` if ``images`` is empty or has more than
                ``max_batch`` items, if the decoder is closed, or if it was opened in a different
                process; with kind ``"busy"`` if ``max_queued`` requests are already queued.
            TypeError: if a value cannot be an image, such as a path, an open file or None.
        """
        return Pending(self, self._core.submit(list(images)))

    def dynamic_batcher(self, f: Callable[[Decoded], Any], *, max_delay_ms: float) -> DynamicBatcher:
        """Batches the images of concurrent requests and calls ``f``, such as a model, on each
        batch.

        Decoding of a batch starts when it has ``max_batch`` images, when the next request would
        exceed this number, or ``max_delay_ms`` after the first request of the batch was submitted.
        A busy decoder may delay the start. ``f(decoded)`` must return a list, an array or a tensor
        with one result for each image. To return several outputs, such as boxes and scores, return
        ``list(zip(boxes, scores))``::

            batcher = decoder.dynamic_batcher(lambda decoded: model(decoded.images).argmax(1), max_delay_ms=5)
            results = await asyncio.wrap_future(batcher.submit(uploads))

        The batcher calls ``f`` on a separate thread, for one batch at a time.

        Args:
            f: the function. If it raises an exception, all requests in the batch fail with this
                exception.
            max_delay_ms: maximum time to wait for more requests, in milliseconds, from 0 to 60000.

        Raises:
            ConfigError: if ``max_delay_ms`` is out of range, if the decoder is closed, or if it was
                opened in a different process.
            TypeError: if ``f`` is not callable, or ``max_delay_ms`` is not a number.
        """
        core = self._core.dynamic_batcher(checked_delay(f, max_delay_ms))

        def to_decoded(response: _warpfeed.PendingResponse) -> Decoded:
            return self._to_decoded(response.wait(self._delivery.stream()))

        return DynamicBatcher(core, to_decoded, f)

    def stats(self) -> Stats:
        """Returns the statistics so far, as a dict that prints as a table."""
        stats = Stats(*self._core.stats())
        stats["options"] = f"Decoder({', '.join(f'{name}={value!r}' for name, value in self._arguments.items())})"
        return stats

    def memory_plan(self) -> Report:
        """Returns how many bytes of memory the decoder needs, as a dict that prints as a
        sentence."""
        return Report(*self._core.memory_plan())

    def close(self) -> None:
        """Stops all threads of the decoder. Unfinished requests fail, including the requests of a
        :meth:`dynamic_batcher`. Batches that have been taken stay valid."""
        self._core.close()

    def _begin_close(self) -> bool:
        """Begins to close the decoder without waiting. Returns whether its threads have ended."""
        return bool(self._core.begin_close())

    def _running_callbacks(self) -> list[str]:
        """Returns an empty list, because a decoder calls no functions of the user."""
        return []

    def __repr__(self) -> str:
        device = "" if self.device is None else f", device={self.device}"
        return f"Decoder(max_batch={self._max_batch}{device})"

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
