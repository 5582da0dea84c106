"""The errors of the loader."""

from __future__ import annotations

import traceback

__all__ = ["ConfigError", "MissingError", "StorageError", "TimedOutError", "WarpfeedError", "free_frames"]


class WarpfeedError(RuntimeError):
    """An error that names the place before the cause.

    ``str(error)`` reads like ``sample 18231 (n01440764/x): train/n01440764/x.JPEG: decode: jpeg
    ends at byte 4096 in MCU 61 of 132``.

    Subclasses are also the built-in class that programs catch: :class:`ConfigError` is a
    ``ValueError``, :class:`StorageError` an ``OSError``, :class:`MissingError` also a
    ``FileNotFoundError``, and :class:`TimedOutError` a ``TimeoutError``. A value of the wrong type
    or an unknown argument is a plain ``TypeError``.

    Attributes:
        kind: the class of the error: ``io``, ``config``, ``source``, ``decode``, ``transform``,
            ``panic``, ``too_many_skipped``, ``memory``, ``cuda``, ``timeout``, ``capturing`` or
            ``busy``. An exception of the program's own code is ``source`` if it is that of a dataset
 , and ``transform`` if it is that of a function.
        sample: the sample's index in its source, or None.
        key: the sample's key, or None.
        path: the file or folder, or None.
        errno: the operating system's error number, or None.

    An exception of a dataset in Python, or of a function of the program (``transform``,
    ``transforms``, ``collate``, ``order``), is its ``__cause__``.
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

    # `OSError` prints its number and file instead.
    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.kind, self.sample, self.key, self.path, self.errno)


class ConfigError(WarpfeedError, ValueError):
    """An option has a value that cannot work."""


class StorageError(WarpfeedError, OSError):
    """The operating system refused to open, read, map or write."""

    @property
    def filename(self) -> str | None:
        """The same as ``path``."""
        return self.path


class MissingError(StorageError, FileNotFoundError):
    """A file or folder does not exist."""


class TimedOutError(WarpfeedError, TimeoutError):
    """No batch moved for longer than ``timeout``."""


def free_frames(e: BaseException) -> None:
    """Clears the variables of the frames that `e` and its causes went through. Their lines stay.

    An exception that is kept would keep these variables, such as a batch and its slot.
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
