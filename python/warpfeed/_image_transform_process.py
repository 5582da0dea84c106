"""The code of the worker processes that call the user's function on each image.

The pixels are in a memory file that the loader shares with the process. A request consists of the
size of the image and two words of random numbers. A response consists of a status, the length of
the pickled exception, and the nanoseconds spent in the function. If the status is 1, the pickled
exception follows.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import struct
import sys
import threading
import time
import traceback
from typing import Any, Callable

__all__ = ["call", "serve", "unpack_exception"]

_REQUEST = struct.Struct("=IIQQ")
_RESPONSE = struct.Struct("=IIQ")


class RemoteTraceback(Exception):
    """Contains the traceback of a worker process as text. It becomes the cause of the exception
    that the user's function raised."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def call(f: Callable[..., Any], pixels: Any, height: int, width: int, *words: int) -> None:
    """Replaces `pixels` with the result of ``f(image, rng)``. `words` seed ``rng``.

    Raises:
        TypeError: if the result is not a uint8 image of the same size.
    """
    import numpy as np

    buffer = np.frombuffer(pixels, np.uint8, height * width * 3).reshape(height, width, 3)
    # The function may keep the image, but the buffer is reused.
    result = f(buffer.copy(), np.random.default_rng(words))
    if not isinstance(result, np.ndarray) or result.dtype != np.uint8 or result.shape != buffer.shape:
        raise TypeError(
            f"image_transform returned {_type_text(result)}: expected a NumPy array of uint8 of shape {buffer.shape}. "
            "The loader casts, normalizes and transposes (dtype, normalize, layout); leave Normalize and ToTensor out"
        )
    buffer[...] = result


def _type_text(value: Any) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{kind} of {value.dtype} of shape {tuple(value.shape)}"
    return kind


def unpack_exception(packed: bytes) -> BaseException:
    """Restores an exception, with the traceback from the worker process in its cause."""
    text, pickled = pickle.loads(packed)
    try:
        unpickled = pickle.loads(pickled)
    except Exception:
        unpickled = None
    exception = unpickled if isinstance(unpickled, BaseException) else RuntimeError(text.rstrip().rpartition("\n")[2])
    exception.__cause__ = RemoteTraceback(text)
    return exception


def _pack_exception(e: BaseException) -> bytes:
    """Pickles the traceback as text, and the exception if possible."""
    text = "".join(traceback.format_exception(type(e), e, e.__traceback__))
    try:
        pickled = pickle.dumps(e)
        pickle.loads(pickled)
    except Exception:
        pickled = pickle.dumps(None)
    return pickle.dumps((text[-100_000:], pickled if len(pickled) < 100_000 else pickle.dumps(None)))


def _read(fd: int, count: int) -> bytes | None:
    """Reads `count` bytes. Returns None if the loader has closed the socket."""
    read = b""
    while len(read) < count:
        try:
            extra = os.read(fd, count - len(read))
        except ConnectionResetError:
            return None
        if not extra:
            return None
        read += extra
    return read


def _respond(fd: int, response: bytes) -> bool:
    """Sends `response`. Returns false if the loader has closed the socket."""
    try:
        while response:
            response = response[os.write(fd, response) :]
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def _seed_globals(words: tuple[int, ...]) -> None:
    """Seeds the global generators, in case the function uses them instead of `rng`. Without the
    seeds, its results would depend on the earlier samples of this process."""
    import random

    random.seed(words[0])
    for name, seed in (("numpy", _seed_numpy), ("torch", _seed_torch)):
        if name in sys.modules:
            seed(sys.modules[name], words[1])


def _seed_numpy(numpy: Any, word: int) -> None:
    numpy.random.seed(word & 0xFFFFFFFF)


def _seed_torch(torch: Any, word: int) -> None:
    torch.manual_seed(word >> 1)


def _one_thread() -> None:
    """Limits OpenCV and torch to one thread, because the processes together use all cores."""
    cv2, torch = sys.modules.get("cv2"), sys.modules.get("torch")
    if cv2 is not None:
        cv2.setNumThreads(0)
    if torch is not None:
        torch.set_num_threads(1)


def _exit_with_loader(loader: int) -> None:
    """Exits when the loader's process has died, even while the function runs. The socket may stay
    open, because a child forked from the loader's process may hold it."""
    while os.getppid() == loader:
        time.sleep(1)
    os._exit(1)


def _read_file(file: Any, length: int) -> bytes:
    fd = file.detach()
    try:
        content = b""
        while len(content) < length:
            extra = os.pread(fd, length - len(content), len(content))
            if not extra:
                raise EOFError(f"the file with the pickled function ends after {len(content)} of {length} bytes")
            content += extra
        return content
    finally:
        os.close(fd)


def serve(socket: Any, shared: Any, function: Any, length: int, loader: int) -> None:
    """Runs the process until the loader closes the socket. The first `length` bytes of the file
    `function` are the pickled function, and `loader` is the id of the loader's process."""
    threading.Thread(target=_exit_with_loader, args=(loader,), daemon=True).start()
    # Ctrl-C sends SIGINT to the whole group. The loader's process handles it, and ends this
    # process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import numpy  # noqa: F401

    fd, file = socket.detach(), shared.detach()
    load_error: bytes | None = None
    f: Callable[..., Any] = call
    try:
        f = pickle.loads(_read_file(function, length))
        _one_thread()
    except BaseException as e:
        load_error = _pack_exception(e)
    pixels: mmap.mmap | None = None
    mapped = 0
    while True:
        request = _read(fd, _REQUEST.size)
        if request is None:
            return
        width, height, *words = _REQUEST.unpack(request)
        start = time.perf_counter_ns()
        if load_error is not None:
            if not _respond(fd, _RESPONSE.pack(1, len(load_error), 0) + load_error):
                return
            continue
        try:
            if mapped < width * height * 3:
                # `mapped` is updated only on success, so the next image retries after a failure.
                pixels = mmap.mmap(file, width * height * 3)
                mapped = width * height * 3
            _seed_globals(tuple(words))
            without_torch = "torch" not in sys.modules
            original = bytes(pixels[: width * height * 3]) if without_torch and pixels is not None else b""
            call(f, pixels, height, width, *words)
            if without_torch and pixels is not None and "torch" in sys.modules:
                # The function imported torch during this call, so the call is repeated with a
                # seeded generator.
                _one_thread()
                _seed_globals(tuple(words))
                pixels[: len(original)] = original
                call(f, pixels, height, width, *words)
            response = _RESPONSE.pack(0, 0, time.perf_counter_ns() - start)
        except BaseException as e:
            packed = _pack_exception(e)
            response = _RESPONSE.pack(1, len(packed), time.perf_counter_ns() - start) + packed
        if not _respond(fd, response):
            return
