"""Datasets that need more than a path, and the columns of tables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ._error import ConfigError
from ._options import Arguments, Path, one_of, texts

__all__ = ["Coco", "Concat", "TableOptions", "Tokens", "Voc", "Yolo"]


@dataclass(frozen=True)
class Coco(Arguments):
    """Images with the annotations of a COCO JSON file. ``Loader("instances_val2017.json")`` finds
    the images in the usual folders. Pass their folder as ``images`` if they are elsewhere.

    A sample is an image, in the order of the ids. Its fields are ``boxes`` with ``boxes.class``,
    ``boxes.crowd``, ``boxes.area``, ``boxes.masks`` and ``boxes.points`` for :class:`Boxes`, and ``image_id``.
    """

    json: Path
    images: Path | None = None

    def _describe_source(self) -> dict[str, Any]:
        images = None if self.images is None else os.fspath(self.images)
        return {"kind": "coco", "path": os.fspath(self.json), "images": images}


@dataclass(frozen=True)
class Yolo(Arguments):
    """Images with label files of YOLO. ``path`` is a ``data.yaml``, and ``split`` one of its splits (``"train"``, the
    default, ``"val"`` or ``"test"``). Alternatively, ``path`` is a folder that contains ``images``
    and ``labels``.

    The fields are ``boxes`` with ``boxes.class``, ``boxes.points`` and ``boxes.masks`` for
    :class:`Boxes`, which converts their relative coordinates to pixels.
    """

    path: Path
    split: str | None = None

    def _describe_source(self) -> dict[str, Any]:
        return {"kind": "yolo", "path": os.fspath(self.path), "split": self.split}


@dataclass(frozen=True)
class Voc(Arguments):
    """Images with the annotations of Pascal VOC. ``path`` is the folder of the dataset, or a list in ``ImageSets``.

    The annotation files count pixels from 1, and the last pixel is part of the box. Therefore 1 is
    subtracted from the left and upper edges, as in Detectron2. For example, xmin 1 becomes 0, and
    xmax does not change. ``from_zero=True`` keeps all edges, for files that count pixels from 0.

    The fields are ``boxes`` with ``boxes.class`` and ``boxes.difficult`` for :class:`Boxes`, and
    ``mask`` for :class:`Mask`. In a mask, 0 is the background, c + 1 is the class c of the boxes, and 255 is
    the outline.
    """

    path: Path
    from_zero: bool = False

    def _describe_source(self) -> dict[str, Any]:
        return {"kind": "voc", "path": os.fspath(self.path), "from_zero": self.from_zero}


@dataclass(frozen=True)
class Tokens(Arguments):
    """Windows over memory-mapped files of tokens, for language models: a ``.bin`` of little-endian
    integers, with or without the header of llm.c, an ``.npy`` of one axis, or a folder of such files.

    ``Loader(Tokens("corpus", 1025, stride=1024))`` delivers the field ``tokens``, (N, 1025) i64, and
    neither images nor labels. ``tokens[:, :-1]`` and ``tokens[:, 1:]`` are the inputs and the targets.
    :class:`TokenIds` has options for the field. A window never crosses the end of a file. Tokens
    after the last whole window of a file are not part of any sample.

    Args:
        path: the file or the folder.
        length: number of tokens per window.
        stride: distance between the first tokens of two windows; ``length`` by default.
        dtype: type of the stored tokens, ``"u16"`` or ``"u32"``.
        mmap: maps the files into memory instead of reading them.
    """

    path: Path
    length: int
    stride: int | None = None
    dtype: str = "u16"
    mmap: bool = True

    def _describe_source(self) -> dict[str, Any]:
        described = {"path": os.fspath(self.path), "length": self.length, "mmap": self.mmap}
        described["dtype"] = one_of("dtype", self.dtype, ("u16", "u32"))
        return {"kind": "tokens", **described, "stride": self.length if self.stride is None else self.stride}


@dataclass(frozen=True)
class Concat(Arguments):
    """Several datasets as one: the samples of the first dataset, then the samples of the second, and so on. A
    mixture, ``Loader([(a, 0.7), (b, 0.3)])``, draws samples in proportions instead.

    Args:
        parts: paths, Python datasets, or objects such as :class:`Coco`.
        match_labels_by_name: assigns the same label to classes with the same name.
        keep_labels: keeps the labels unchanged, even if the class names differ. By default, an
            error is raised if datasets have different class names for the same label.
    """

    parts: Sequence[Any]
    match_labels_by_name: bool = False
    keep_labels: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.parts, (str, bytes, os.PathLike)):
            raise TypeError(f"parts={self.parts!r}: expected a list of datasets, such as [{self.parts!r}, ...]")
        object.__setattr__(self, "parts", tuple(self.parts))
        if self.match_labels_by_name and self.keep_labels:
            raise ConfigError("match_labels_by_name and keep_labels: both change the labels; set one of them")

    def _describe_source(self) -> dict[str, Any]:
        chosen = [name for name in ("match_labels_by_name", "keep_labels") if getattr(self, name)]
        return {"kind": "concat", "parts": list(self.parts), "labels": chosen[0] if chosen else ""}


def names_url(data: Any) -> bool:
    """Whether `data`, or a part of it, is a URL."""
    if isinstance(data, (str, os.PathLike)):
        scheme, found, _ = str(os.fspath(data)).partition("://")
        return bool(found) and scheme != "file"
    if isinstance(data, list):
        return any(names_url(part) for part, *_ in data)
    if not hasattr(data, "_describe_source"):
        return False
    described = data._describe_source()
    paths = (described.get("path"), described.get("images"), *described.get("parts", ()))
    return any(map(names_url, paths))


@dataclass(frozen=True)
class TableOptions(Arguments):
    """Roles of the columns of a CSV, TSV or JSON-lines file: ``Loader("train.csv", table=...)``.

    By default the column ``path``, ``file``, ``image``, ``filename``, ``file_name`` or ``img``
    contains the paths of the images, and ``label``, ``class``, ``cls`` or ``category`` contains the
    labels. Every other column is a field.

    Args:
        image: the column with the paths of the images.
        root: the folder that paths are relative to; by default the folder of the table. A relative ``root`` starts
            at the current folder.
        label: the column with the labels: integers, or class names.
        without_label: whether no column has labels. A column named ``label`` is then an ordinary field.
        columns: the columns that become fields; by default all others.
        files: columns with the paths of further files, such as masks. The bytes of the file become
            the field ``<column>.<extension>``.
        gather: joins numeric columns into a vector: ``{"attributes": ["age", "weight"]}``.
        delimiter: the character between two cells, such as ``";"``.
        headerless: whether the file has no header. The columns are then named ``0``, ``1``, ``2``, ….
    """

    image: str | None = None
    root: Path | None = None
    label: str | None = None
    without_label: bool = False
    columns: Sequence[str] | None = None
    files: Sequence[str] = ()
    gather: Mapping[str, Sequence[str]] | Sequence[tuple[str, Sequence[str]]] = ()
    delimiter: str | None = None
    headerless: bool = False

    def __post_init__(self) -> None:
        if self.columns is not None:
            object.__setattr__(self, "columns", texts("columns", self.columns))
        object.__setattr__(self, "files", texts("files", self.files))
        gather = self.gather.items() if isinstance(self.gather, Mapping) else self.gather
        try:
            pairs: list[tuple[Any, Any]] = [(name, columns) for name, columns in gather]
        except (TypeError, ValueError):
            pairs = [(None, self.gather)]
        for name, _ in pairs:
            if not isinstance(name, str) or isinstance(self.gather, str):
                raise TypeError(f"gather={self.gather!r}: expected a dict such as {{'attributes': ['age', 'weight']}}")
        object.__setattr__(self, "gather", tuple((name, texts(f"gather: {name}", columns)) for name, columns in pairs))
        if self.delimiter is not None and (len(self.delimiter) != 1 or not self.delimiter.isascii()):
            raise ConfigError(f"delimiter={self.delimiter!r}: expected one ASCII character")

    def _describe(self) -> dict[str, Any]:
        described = {name: value for name, value in vars(self).items() if value is not None and value is not False}
        if self.root is not None:
            described["root"] = os.fspath(self.root)
        if self.delimiter is not None:
            described["delimiter"] = ord(self.delimiter)
        return described
