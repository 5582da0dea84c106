"""The exceptions of the package."""

from __future__ import annotations

import traceback

__all__ = ["ConfigError", "LoaderTimeoutError", "NotFoundError", "StorageError", "WarpfeedError", "free_frames"]


class WarpfeedError(RuntimeError):
    """An error whose message states the location before the cause.

    ``str(error)`` reads like ``sample 18231 (n01440764/x): train/n01440764/x.JPEG: decode: jpeg
    ends at byte 4096 in MCU 61 of 132``.

    The subclasses also derive from the built-in exceptions that callers usually catch:
    :class:`ConfigError` is a ``ValueError``, :class:`StorageError` an ``OSError``,
    :class:`NotFoundError` a ``FileNotFoundError``, and :class:`LoaderTimeoutError` a
    ``TimeoutError``. A value of the wrong type or an unknown argument raises a plain ``TypeError``.

    Attributes:
        kind: category of the error: ``io``, ``config``, ``source``, ``decode``, ``transform``,
            ``panic``, ``too_many_skipped``, ``memory``, ``cuda``, ``timeout``, ``capturing`` or
            ``busy``. For an exception in the user's own code, the kind is ``source`` if a dataset
            raised it, and ``transform`` if a function raised it.
        sample: index of the sample in its dataset, or None.
        key: key of the sample, or None.
        path: the file or folder, or None.
        errno: error number of the operating system, or None.

    If a Python dataset or a user function (``image_transform``, ``batch_transform``, ``collate``,
    ``sampler``) raised an exception, that exception is the ``__cause__``.
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

    # Without this, `OSError` would print its error number and file.
    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.kind, self.sample, self.key, self.path, self.errno)


class ConfigError(WarpfeedError, ValueError):
    """An option has a value that cannot work, or options contradict each other."""


class StorageError(WarpfeedError, OSError):
    """The operating system or a store failed to open, read, map or write data."""

    @property
    def filename(self) -> str | None:
        """The path, as in ``path``."""
        return self.path


class NotFoundError(StorageError, FileNotFoundError):
    """A file or folder does not exist."""


class LoaderTimeoutError(WarpfeedError, TimeoutError):
    """The loader or decoder could not deliver a batch for longer than ``timeout``."""


def free_frames(e: BaseException) -> None:
    """Clears the local variables of the frames in the tracebacks of `e` and its causes. The line
    numbers of the tracebacks are preserved.

    Otherwise, a caller that keeps the exception would also keep these variables, such as a batch
    and its slot.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [e]
    while left:
        e_or_none = left.pop()
        if e_or_none is None or id(e_or_none) in seen:
            continue
        seen.add(id(e_or_none))
        traceback.clear_frames(e_or_none.__traceback__)
        left += [e_or_none.__cause__, e_or_none.__context__, *getattr(e_or_none, "exceptions", ())]
