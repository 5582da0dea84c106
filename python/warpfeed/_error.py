"""The exceptions of the package."""

from __future__ import annotations

import traceback

__all__ = ["ConfigError", "LoaderTimeoutError", "NotFoundError", "StorageError", "WarpfeedError", "free_frames"]


class WarpfeedError(RuntimeError):
    """Base class of the package's errors. The message names the location first, then the cause, for
    example ``sample 18231 (n01440764/x): train/n01440764/x.JPEG: decode: jpeg ends at byte 4096 in
    MCU 61 of 132``.

    Each subclass also derives from the built-in exception that callers usually catch:
    :class:`ConfigError` is a ``ValueError``, :class:`StorageError` an ``OSError``,
    :class:`NotFoundError` a ``FileNotFoundError``, and :class:`LoaderTimeoutError` a
    ``TimeoutError``. A value of the wrong type or an unknown argument raises a plain ``TypeError``.

    Attributes:
        kind: category of the error: ``io``, ``config``, ``source``, ``decode``, ``transform``,
            ``panic``, ``too_many_skipped``, ``memory``, ``cuda``, ``timeout``, ``capturing`` or
            ``busy``. For an exception from user code, the kind is ``source`` if a dataset raised
            it, and ``transform`` if a function raised it.
        sample: index of the sample that failed, or None.
        key: key of the sample that failed, or None.
        path: path of the file or folder that failed, or None.
        errno: error number from the operating system, or None.

    If a Python dataset or a user function (``image_transform``, ``batch_transform``, ``collate``,
    ``sampler``) raised an exception, ``__cause__`` is that exception.
    """

    def __init__(
        self,
        message: str,
        kind: str = "config",
        sample: int | None = None,
        key: str | None = None,
        path: str | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message)
        self.args = (message,)
        self.kind = kind
        self.sample = sample
        self.key = key
        self.path = path
        self.errno = errno

    # `OSError` would print the error number and the file name instead of the message.
    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.kind, self.sample, self.key, self.path, self.errno)


class ConfigError(WarpfeedError, ValueError):
    """An option has an unsupported value, options contradict each other, or a call is not possible
    in the current state, for example on a closed loader."""


class StorageError(WarpfeedError, OSError):
    """The operating system or a store failed to open, read, map or write data."""

    @property
    def filename(self) -> str | None:
        """The same as ``path``, under the name that ``OSError`` uses."""
        return self.path


class NotFoundError(StorageError, FileNotFoundError):
    """A file or folder does not exist."""


class LoaderTimeoutError(WarpfeedError, TimeoutError):
    """The loader or decoder could not deliver a batch within ``held_batches_timeout`` seconds."""


def free_frames(e: BaseException) -> None:
    """Clears the local variables of all frames in the tracebacks of `e` and its causes. The
    tracebacks still show line numbers.

    Otherwise, a caller that keeps the exception would keep these variables alive. One of them may
    be a batch, and the loader could not reuse the batch's memory.
    """
    seen: set[int] = set()
    remaining: list[BaseException | None] = [e]
    while remaining:
        current = remaining.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        traceback.clear_frames(current.__traceback__)
        remaining += [current.__cause__, current.__context__, *getattr(current, "exceptions", ())]
