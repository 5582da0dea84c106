"""The code that runs in the worker processes, which call the user's function on each image.

A request consists of the size of the image and two words of random numbers. Both processes map the
pixels from the same in-memory file. The response is a status, followed by the exception if there
was one.
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

__all__ = ["call", "rebuilt", "serve"]

_REQUEST = struct.Struct("=IIQQ")
_ANSWER = struct.Struct("=IIQ")


class RemoteTraceback(Exception):
    """The traceback of an exception in a worker process, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def call(f: Callable[..., Any], pixels: Any, height: int, width: int, *words: int) -> None:
    """Replaces `pixels` with ``f(image, rng)``.

    Raises:
        TypeError: if the result is not an image of the same size.
    """
    import numpy as np

    buffer = np.frombuffer(pixels, np.uint8, height * width * 3).reshape(height, width, 3)
    # The function may keep its image, and the buffer is reused for other samples.
    made = f(buffer.copy(), np.random.default_rng(words))
    if not isinstance(made, np.ndarray) or made.dtype != np.uint8 or made.shape != buffer.shape:
        raise TypeError(
            f"image_transform returned {_shown(made)}: expected a NumPy array of uint8 of shape {buffer.shape}. The "
            "loader casts, normalizes and transposes (dtype, normalize, layout); leave Normalize and ToTensor out"
        )
    buffer[...] = made


def _shown(made: Any) -> str:
    kind = f"{type(made).__module__}.{type(made).__qualname__}".removeprefix("builtins.")
    if hasattr(made, "shape") and hasattr(made, "dtype"):
        return f"{kind} of {made.dtype} of shape {tuple(made.shape)}"
    return kind


def rebuilt(raised: bytes) -> BaseException:
    """Returns the exception that a process sent. The exception's cause contains the traceback in
    that process."""
    text, pickled = pickle.loads(raised)
    try:
        sent = pickle.loads(pickled)
    except Exception:
        sent = None
    exception = sent if isinstance(sent, BaseException) else RuntimeError(text.rstrip().rpartition("\n")[2])
    exception.__cause__ = RemoteTraceback(text)
    return exception


def _sent(e: BaseException) -> bytes:
    text = "".join(traceback.format_exception(type(e), e, e.__traceback__))
    try:
        pickled = pickle.dumps(e)
        pickle.loads(pickled)
    except Exception:
        pickled = pickle.dumps(None)
    return pickle.dumps((text[-100_000:], pickled if len(pickled) < 100_000 else pickle.dumps(None)))


def _read(end: int, count: int) -> bytes | None:
    """Returns the next `count` bytes, or None at the end of the stream."""
    read = b""
    while len(read) < count:
        try:
            more = os.read(end, count - len(read))
        except ConnectionResetError:
            # The loader's process was terminated, for example by SIGTERM.
            return None
        if not more:
            return None
        read += more
    return read


def _answered(end: int, answer: bytes) -> bool:
    """Writes `answer`. Returns whether the loader's process is still reading."""
    try:
        while answer:
            answer = answer[os.write(end, answer) :]
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def _seed_globals(words: tuple[int, ...]) -> None:
    """Seeds global generators, which the function may use instead of `rng`, so that its results do not
    depend on the earlier samples of this process."""
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
    """Limits libraries to one thread, because the processes together use all cores."""
    cv2, torch = sys.modules.get("cv2"), sys.modules.get("torch")
    if cv2 is not None:
        cv2.setNumThreads(0)
    if torch is not None:
        torch.set_num_threads(1)


def _end_with(loader: int) -> None:
    """Ends this process once the loader's process has ended, even while the function runs. Waiting
    for the socket to close is not enough, because a child that was forked from the loader's process
    may keep it open."""
    while os.getppid() == loader:
        time.sleep(1)
    os._exit(1)


def _content(file: Any, length: int) -> bytes:
    end = file.detach()
    try:
        content = b""
        while len(content) < length:
            more = os.pread(end, length - len(content), len(content))
            if not more:
                raise EOFError("the pickled function ends early")
            content += more
        return content
    finally:
        os.close(end)


def serve(socket: Any, shared: Any, function: Any, length: int, loader: int) -> None:
    """Processes requests until the loader closes the socket. The file `function` contains the
    `length` bytes of the pickled function, and `loader` is the id of the loader's process."""
    threading.Thread(target=_end_with, args=(loader,), daemon=True).start()
    # Ctrl-C reaches all processes of the group. The loader's process handles it and ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Import NumPy now, because only the generators of imported modules are seeded.
    import numpy  # noqa: F401

    end, file = socket.detach(), shared.detach()
    failed: bytes | None = None
    f: Callable[..., Any] = call
    try:
        f = pickle.loads(_content(function, length))
        _one_thread()
    except BaseException as e:
        failed = _sent(e)
    pixels: mmap.mmap | None = None
    mapped = 0
    while True:
        request = _read(end, _REQUEST.size)
        if request is None:
            return
        width, height, *words = _REQUEST.unpack(request)
        start = time.perf_counter_ns()
        if failed is not None:
            if not _answered(end, _ANSWER.pack(1, len(failed), 0) + failed):
                return
            continue
        try:
            if mapped < width * height * 3:
                # If mapping fails, the next image of this size tries again.
                pixels = mmap.mmap(file, width * height * 3)
                mapped = width * height * 3
            _seed_globals(tuple(words))
            unloaded = "torch" not in sys.modules
            original = bytes(pixels[: width * height * 3]) if unloaded and pixels is not None else b""
            call(f, pixels, height, width, *words)
            if unloaded and pixels is not None and "torch" in sys.modules:
                # The call imported torch, whose generator has not been seeded yet.
                _one_thread()
                _seed_globals(tuple(words))
                pixels[: len(original)] = original
                call(f, pixels, height, width, *words)
            answer = _ANSWER.pack(0, 0, time.perf_counter_ns() - start)
        except BaseException as e:
            raised = _sent(e)
            answer = _ANSWER.pack(1, len(raised), time.perf_counter_ns() - start) + raised
        if not _answered(end, answer):
            return
