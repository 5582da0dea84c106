"""Kinds of fields, under the names of the Rust crate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

from ._options import dtype_name

__all__ = ["Image", "Label", "Numbers", "Rows"]


@dataclass(frozen=True)
class Image:
    """A picture: the one of the sample, or the one in its field ``of``. Delivered as the images."""

    of: str | None = None

    def _describe(self) -> dict[str, Any]:
        return {"kind": "image", "of": self.of}


@dataclass(frozen=True)
class Label:
    """The class as an integer, (N); with ``soft=(classes, smoothing)`` also as rows of shares."""

    unlabelled: bool = False
    soft: tuple[int, float] | None = None

    def _describe(self) -> dict[str, Any]:
        return {"kind": "label", "unlabelled": self.unlabelled, "soft": self.soft}


@dataclass(frozen=True)
class Numbers:
    """An array of one shape: ``Numbers("f32", [768])`` is (N, 768); a shape of ``[]`` gives (N)."""

    dtype: Any
    shape: Sequence[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))

    def _describe(self) -> dict[str, Any]:
        return {"kind": "numbers", "dtype": dtype_name(self.dtype), "shape": list(self.shape)}


@dataclass(frozen=True)
class Rows:
    """A varying number of rows a sample, at most ``most``, padded, with the field ``<name>.count``.

    ``truncated`` cuts what is longer; without it that is an error.
    """

    dtype: Any
    row: Sequence[int] = ()
    most: int = 1
    padding: float | int | None = None
    truncated: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "row", tuple(self.row))

    def _describe(self) -> dict[str, Any]:
        described = {"dtype": dtype_name(self.dtype), "row": list(self.row), "most": self.most}
        return {"kind": "rows", **described, "padding": self.padding, "truncated": self.truncated}
