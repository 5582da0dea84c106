"""Datasets that cannot be described by a path alone, and the options for tables."""

from __future__ import annotations

import json
import operator
import os
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Sequence

from . import _warpfeed
from ._error import ConfigError
from ._number_lists import integers
from ._options import Arguments, Path, name_tuple, one_of, reject_bytes

__all__ = ["Clips", "Coco", "Concat", "Episode", "LeRobot", "PackedTokens", "TableOptions", "Tokens", "Voc", "Yolo", "Zip"]


@dataclass(frozen=True)
class Coco(Arguments):
    """Images with annotations from a COCO JSON file. ``Loader("instances_val2017.json")`` finds the
    images in the usual folders. For images in a different folder, pass the folder as ``images``.

    Each image is a sample, in the order of the image ids. The fields of a sample are ``image_id``,
    and for :class:`Boxes` ``boxes``, ``boxes.class`` and ``boxes.crowd``. If the file contains
    areas, segmentations or keypoints, samples also have ``boxes.area``, ``boxes.masks`` or
    ``boxes.points``.
    """

    json: Path
    images: Path | None = None

    def _describe_source(self) -> dict[str, Any]:
        images = None if self.images is None else os.fspath(self.images)
        return {"kind": "coco", "path": os.fspath(self.json), "images": images}


@dataclass(frozen=True)
class Yolo(Arguments):
    """Images with YOLO label files. ``path`` is a ``data.yaml``, with ``split`` set to one of its
    splits (``"train"``, the default, ``"val"`` or ``"test"``), a folder that contains ``images``
    and ``labels``, or a folder inside ``images``, such as ``coco8/images/val``.

    The fields of a sample are ``boxes`` and ``boxes.class`` for :class:`Boxes`, which converts the
    relative coordinates to pixels. Samples also have ``boxes.points`` if ``data.yaml`` defines
    keypoints, and ``boxes.masks`` if the label file contains polygons.
    """

    path: Path
    split: str | None = None

    def _describe_source(self) -> dict[str, Any]:
        return {"kind": "yolo", "path": os.fspath(self.path), "split": self.split}


@dataclass(frozen=True)
class Voc(Arguments):
    """Images with Pascal VOC annotations. ``path`` is the folder of the dataset, or a list in its
    folder ``ImageSets``.

    VOC counts pixels from 1 and includes the last pixel in the box. So, as in Detectron2, 1 is
    subtracted from the left and upper edges: an xmin of 1 becomes 0, and xmax does not change. For
    files that count from 0, ``zero_based=True`` leaves all edges unchanged.

    The fields of a sample are ``boxes``, ``boxes.class`` and ``boxes.difficult`` for :class:`Boxes`
    if the dataset has the folder ``Annotations``, and ``mask`` for :class:`Mask` if
    ``SegmentationClass`` contains a mask of the image. In a mask, 0 is the background, c + 1 stands
    for class c of the boxes, and 255 is the outline of an object.
    """

    path: Path
    zero_based: bool = False

    def _describe_source(self) -> dict[str, Any]:
        return {"kind": "voc", "path": os.fspath(self.path), "zero_based": self.zero_based}


#: More frames than any video has.
_MAX_JITTER = 1 << 31


@dataclass(frozen=True)
class Clips(Arguments):
    """Clips of the videos in a folder. The folders are the classes, as for images: the class of
    ``archery/a.mp4`` is ``archery``.

    ::

        data = warpfeed.Clips("kinetics", frames=8, stride=4, start_jitter=None)
        loader = warpfeed.Loader(data, augment=warpfeed.Augment.train(112), batch_size=4, shuffle=True)
        for batch in loader:
            batch["video"], batch["label"]  # torch tensors of shape (4, 8, 3, 112, 112) and (4,)

    The fields of a sample are ``video`` for ``Image("video", frames=8)``, and ``video_is_pad``, u8
    of shape (8,), which is 1 for frames after the end of the video. Such frames repeat the last
    frame. By default, a loader has both fields and the label. AV1 videos are decoded on the host,
    and H.264, HEVC and VP9 videos need an NVIDIA GPU.

    The clips of a video start at evenly spaced frames, from the first frame to the last possible
    start. A single clip is in the middle of the video. With ``start_jitter``, the loader moves each
    start by a random number of frames, which depends only on the seed, the epoch and the sample.

    Args:
        path: folder or URL of the videos, in class folders or flat.
        frames: number of frames of a clip.
        stride: distance between consecutive frames of a clip, in frames of the video; 1 by default.
        fps: frame rate of a clip in frames per second, instead of ``stride``. Each frame of a clip
            is the frame of the video that is nearest in time.
        clips_per_video: number of clips of each video. Each clip is a sample.
        start_jitter: maximum distance in frames by which a start is moved to either side; None for
            any distance. The whole clip stays inside the video.
        pad_short_videos: pass False to raise an error for a video that is shorter than a clip.
    """

    path: Path
    frames: int = 8
    stride: int | None = None
    fps: float | None = None
    clips_per_video: int = 1
    start_jitter: int | None = 0
    pad_short_videos: bool = True

    def __post_init__(self) -> None:
        for name in ("frames", "stride", "clips_per_video", "start_jitter"):
            value = getattr(self, name)
            if value is None and name in ("stride", "start_jitter"):
                continue
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError(f"{name}={value!r}: expected an integer")
            if operator.index(value) < 0:
                raise ConfigError(f"{name}={value!r}: expected 0 or more")
            object.__setattr__(self, name, operator.index(value))

    def _describe_source(self) -> dict[str, Any]:
        described = {name: getattr(self, name) for name in ("frames", "stride", "clips_per_video", "pad_short_videos")}
        jitter = _MAX_JITTER if self.start_jitter is None else min(self.start_jitter, _MAX_JITTER)
        fps = None if self.fps is None else float(self.fps)
        return {"kind": "clips", "path": os.fspath(self.path), **described, "fps": fps, "start_jitter": jitter}


@dataclass(frozen=True)
class Episode:
    """An episode of a :class:`LeRobot` dataset, as :meth:`LeRobot.episode_table` lists it."""

    index: int
    """Index of the episode in the dataset."""
    samples: range
    """Indices of its samples, one for each frame."""
    tasks: tuple[str, ...]
    """Texts of its tasks, in the order of their first frames."""


@dataclass(frozen=True)
class LeRobot(Arguments):
    """The frames of robot episodes in a LeRobot dataset of version 2.0, 2.1 or 3.0. Each frame of
    an episode is a sample.

    ::

        data = warpfeed.LeRobot("arm", delta_indices={"action": range(16)})
        loader = warpfeed.Loader(data, batch_size=64, fields={
            "observation.images.top": warpfeed.Image("observation.images.top"),
            "observation.state": warpfeed.NdArray("f32", [3]),
            "action": warpfeed.NdArray("f32", [16, 4]),
            "action_is_pad": warpfeed.NdArray("u8", [16]),
            "task": warpfeed.Text(),
        })

    The fields of a sample have the names of the features: numbers and ``bool`` for
    :class:`NdArray`, images and videos for :class:`Image`, and strings for :class:`Text`. The
    ``task`` field is the text of the frame's task, for :class:`Text`. AV1 videos are decoded on the
    host, and H.264, HEVC and VP9 videos need an NVIDIA GPU. Other videos are left out, and
    requesting such a feature raises an error.

    With deltas, a feature of T frames has the shape (T, ...), and the ``<feature>_is_pad`` field,
    u8 of shape (T,), is 1 for frames outside the episode. Such frames repeat the first or the last
    frame of the episode, as in the ``lerobot`` library.

    Args:
        path: folder or URL of the dataset.
        episodes: indices of the episodes to read; all by default. Samples are always in the order
            of the dataset.
        split: name of a split in ``meta/info.json``, such as ``"train"``. The split must contain
            all ``episodes``.
        features: names of the features that samples contain, including ``"task"``; all by default.
            A sample has at most 16 fields, including ``<feature>_is_pad``. A loader reads only the
            fields that it needs.
        delta_timestamps: for each feature, the times of the frames to stack, in seconds relative to
            the frame of the sample, as in the ``lerobot`` library.
        delta_indices: like ``delta_timestamps``, but in frames.
        tolerance_s: how far a time may be from a multiple of the frame duration, in seconds.
            Consecutive timestamps in the dataset and the presentation times of videos are checked
            with the same tolerance.
    """

    path: Path
    episodes: Sequence[int] | None = None
    split: str | None = None
    features: Sequence[str] | None = None
    delta_timestamps: Mapping[str, Iterable[float]] | None = None
    delta_indices: Mapping[str, Iterable[int]] | None = None
    tolerance_s: float = 1e-4

    def __post_init__(self) -> None:
        if self.episodes is not None:
            object.__setattr__(self, "episodes", tuple(integers("episodes", self.episodes)))
        if self.features is not None:
            object.__setattr__(self, "features", name_tuple("features", self.features))
        for name, convert, example in (
            ("delta_timestamps", float, [-0.1, 0.0]),
            ("delta_indices", operator.index, [-1, 0]),
        ):
            deltas = getattr(self, name)
            if deltas is None:
                continue
            if not isinstance(deltas, Mapping):
                raise TypeError(f"{name}={deltas!r}: expected a dict such as {{'action': {example}}}")
            found = {feature: _deltas(f"{name}: {feature}", given, convert, example) for feature, given in deltas.items()}
            object.__setattr__(self, name, found)

    def _describe_source(self) -> dict[str, Any]:
        return {
            "kind": "lerobot",
            "path": os.fspath(self.path),
            "episodes": self.episodes,
            "split": self.split,
            "features": self.features,
            "delta_timestamps": list((self.delta_timestamps or {}).items()),
            "delta_indices": list((self.delta_indices or {}).items()),
            "tolerance_s": float(self.tolerance_s),
        }

    def episode_table(self) -> list[Episode]:
        """Lists the selected episodes, in the order of their samples. Reads the task of every
        frame.

        Use the sample indices for the ``subset``, ``weights`` and ``sampler`` arguments of
        :class:`Loader`::

            data = warpfeed.LeRobot("arm")
            episodes = data.episode_table()
            # Every tenth frame of the episodes with a task about a cup:
            subset = [i for e in episodes if "cup" in e.tasks[0] for i in e.samples[::10]]

        Raises:
            ConfigError: if the dataset has no tasks.
            WarpfeedError: if the dataset cannot be opened or read.
        """
        description = {**self._describe_source(), "delta_timestamps": [], "delta_indices": []}
        result = _warpfeed.lerobot_episodes(description)
        return [Episode(index, range(start, end), tuple(tasks)) for index, start, end, tasks in result]

    def stats(self) -> dict[str, dict[str, Any]]:
        """Reads the statistics of all features, including videos, for normalization.

        Returns:
            ``min``, ``max``, ``mean`` and ``std`` of each feature, as lists with one number for
            each component, or for each channel of an image, with pixels from 0 to 1. ``count`` is
            the number of frames behind these statistics, or None in version 2.0. Version 2.1 stores
            statistics for each episode, and the result combines the statistics of the selected
            episodes. For the other versions, the result contains the statistics of the whole
            dataset.

        Raises:
            WarpfeedError: if the dataset has no statistics, if they are damaged, or if a selected
                episode or the split does not exist.
        """
        stats: dict[str, dict[str, Any]] = json.loads(_warpfeed.lerobot_stats(self._describe_source()))
        return stats


def _deltas(name: str, values: Any, convert: Callable[[Any], Any], example: list[Any]) -> list[Any]:
    """Converts a list of times, or of distances in frames. Raises a TypeError for anything else."""
    try:
        actual = [] if isinstance(values, (str, bytes)) else [convert(value) for value in values]
        is_text = any(isinstance(value, (str, bytes)) for value in values)
    except (TypeError, ValueError):
        actual, is_text = [], True
    if is_text or not actual:
        raise TypeError(f"{name}={values!r}: expected a list such as {example}")
    return actual


@dataclass(frozen=True)
class Tokens(Arguments):
    """Fixed-length windows of token files, for language models. A token file is a ``.bin`` of
    little-endian integers, with or without llm.c's header, or a one-dimensional ``.npy``.

    ``Loader(Tokens("corpus", 1025, stride=1024))`` delivers only the ``tokens`` field, i64 of shape
    (N, 1025). The inputs of a model are ``tokens[:, :-1]``, and its targets are ``tokens[:, 1:]``.
    :class:`TokenIds` has options for this field. A window never crosses the end of a file. Tokens
    after the last complete window of a file are not part of any sample.

    Args:
        path: a token file, or a folder of token files.
        length: number of tokens per window.
        stride: distance between the starts of consecutive windows; ``length`` by default.
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
class PackedTokens(Arguments):
    """Rows of whole documents from token files, for training language models with little padding.
    The files have the same formats as for :class:`Tokens`.

    ``Loader(PackedTokens("corpus", 4096, eos_token_id=50256))`` delivers the ``tokens`` field, i64
    of shape (N, 4096), with the arrays of :class:`PackedIds`. :func:`cu_seqlens` returns the
    lengths of the documents for FlashAttention.

    A document runs up to and including ``eos_token_id``, or to the end of its file. The packer
    looks at a window of consecutive documents of a file at a time, and puts each into the first row
    with enough space left and fewer than ``max_documents`` documents. A document longer than a row
    is split into pieces, and each piece except the last fills a row. The rows depend only on the
    files and these arguments, so shuffling, ranks and checkpoints work as with any other dataset.
    Opening the dataset reads every token once.

    Args:
        path: a token file, or a folder of token files.
        length: number of tokens per row.
        eos_token_id: the token that ends a document.
        window_documents: number of consecutive documents that the packer considers at once.
        max_documents: maximum number of documents per row.
        pad_token_id: the token that fills the rest of a row.
        dtype: type of the stored tokens, ``"u16"`` or ``"u32"``.
        mmap: maps the files into memory instead of reading them.
    """

    path: Path
    length: int
    eos_token_id: int
    window_documents: int = 1024
    max_documents: int = 128
    pad_token_id: int = 0
    dtype: str = "u16"
    mmap: bool = True

    def _describe_source(self) -> dict[str, Any]:
        names = ("length", "eos_token_id", "window_documents", "max_documents", "pad_token_id", "mmap")
        described = {name: getattr(self, name) for name in names}
        dtype = one_of("dtype", self.dtype, ("u16", "u32"))
        return {"kind": "packed_tokens", "path": os.fspath(self.path), "dtype": dtype, **described}


@dataclass(frozen=True)
class Concat(Arguments):
    """The concatenation of several datasets: all samples of the first dataset, then all samples of
    the second, and so on. A mixture, ``Loader([(a, 0.7), (b, 0.3)])``, draws samples in given
    proportions instead.

    Args:
        parts: the datasets: paths, Python datasets, or objects such as :class:`Coco`.
        match_labels_by_name: assigns the same label to classes with the same name.
        keep_labels: keeps the labels unchanged, even if the class names differ. By default, an
            error is raised if the datasets have different class names for the same label.
    """

    parts: Sequence[Any]
    match_labels_by_name: bool = False
    keep_labels: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.parts, (str, bytes, os.PathLike)):
            raise TypeError(f"parts={self.parts!r}: expected a list of datasets, such as [{self.parts!r}, ...]")
        object.__setattr__(self, "parts", tuple(self.parts))
        for part in self.parts:
            reject_bytes("parts", part)
        if self.match_labels_by_name and self.keep_labels:
            raise ConfigError("match_labels_by_name and keep_labels contradict each other; set one of them")

    def _describe_source(self) -> dict[str, Any]:
        chosen = [name for name in ("match_labels_by_name", "keep_labels") if getattr(self, name)]
        return {"kind": "concat", "parts": list(self.parts), "labels": chosen[0] if chosen else ""}


@dataclass(frozen=True)
class Zip(Arguments):
    """Datasets with the same samples in the same order, as one dataset. A sample has the fields of
    all datasets, for example an image, and an embedding from a separate dataset:
    ``Zip(["photos.lmdb", "embeddings.tar"])``.

    The key and the class names come from the first dataset, and the label from the first dataset
    in which the sample has a label. Reading a sample fails if two datasets have a field of the same
    name.

    Args:
        parts: paths, Python datasets, or objects such as :class:`Coco`. All must have the same
            number of samples.
        prefixes: for each dataset, a prefix for the names of its fields, or ``""`` for no prefix.
            With ``prefixes=["", "depth"]``, the ``png`` field of the second dataset becomes
            ``depth.png``.
        check_keys: makes a sample fail if its keys in the datasets differ. Pass False if the keys
            do not correspond, for example because a dataset of arrays uses row numbers.
    """

    parts: Sequence[Any]
    prefixes: Sequence[str] = ()
    check_keys: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.parts, (str, bytes, os.PathLike)):
            raise TypeError(f"parts={self.parts!r}: expected a list of datasets, such as [{self.parts!r}, ...]")
        object.__setattr__(self, "parts", tuple(self.parts))
        for part in self.parts:
            reject_bytes("parts", part)
        object.__setattr__(self, "prefixes", name_tuple("prefixes", self.prefixes))
        if self.prefixes and len(self.prefixes) != len(self.parts):
            raise ConfigError(f"prefixes={self.prefixes!r}: expected a prefix for each of the {len(self.parts)} datasets")

    def _describe_source(self) -> dict[str, Any]:
        return {
            "kind": "zip",
            "parts": list(self.parts),
            "prefixes": list(self.prefixes),
            "check_keys": bool(self.check_keys),
        }


def names_url(data: Any) -> bool:
    if isinstance(data, (str, os.PathLike)):
        scheme, result, _ = str(os.fspath(data)).partition("://")
        return bool(result) and scheme != "file"
    if isinstance(data, list):
        return any(names_url(part) for part, *_ in data)
    if not hasattr(data, "_describe_source"):
        return False
    described = data._describe_source()
    paths = (described.get("path"), described.get("images"), *described.get("parts", ()))
    return any(map(names_url, paths))


@dataclass(frozen=True)
class TableOptions(Arguments):
    """How to read a table, including what each column contains: ``Loader("train.csv", table=...)``.
    ``image``, ``label``, ``without_label`` and ``columns`` also apply to other datasets with
    columns, such as Parquet. The other options apply only to CSV, TSV and JSON Lines files.

    By default, the column ``path``, ``file``, ``image``, ``filename``, ``file_name`` or ``img``
    contains image paths, and the ``label``, ``class``, ``cls`` or ``category`` column contains
    labels. Every other column becomes a field.

    Args:
        image: name of the column that contains image paths, or in Parquet the images themselves.
        root: folder that the paths are relative to; by default the folder of the table. If ``root``
            is a relative path, it is relative to the current folder.
        label: name of the column that contains labels, as integers or class names.
        without_label: pass True if no column contains labels. A column named ``label`` is then an
            ordinary field.
        columns: names of the columns that become fields; by default all remaining columns.
        files: names of columns that contain paths of other files, such as masks. The bytes of a
            file become the ``<column>.<extension>`` field. Columns whose first values are paths of
            existing files are detected.
        gather: joins numeric columns into a vector: ``{"attributes": ["age", "weight"]}``.
        delimiter: the character between cells, such as ``";"``. By default, the name of the file
            and its first line determine the character.
        headerless: pass True if the file has no header. The columns are then named ``0``, ``1``,
            ``2`` and so on.
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
        for name in ("image", "label"):
            column = getattr(self, name)
            if column is not None and not isinstance(column, str):
                raise TypeError(
                    f"{name}={column!r}: expected the name of one column as a str; to read further columns, use "
                    "fields, such as fields={'shape': NdArray('i64', [])}"
                )
        if self.columns is not None:
            object.__setattr__(self, "columns", name_tuple("columns", self.columns))
        object.__setattr__(self, "files", name_tuple("files", self.files))
        gather = self.gather.items() if isinstance(self.gather, Mapping) else self.gather
        try:
            pairs: list[tuple[Any, Any]] = [(name, columns) for name, columns in gather]
        except (TypeError, ValueError):
            pairs = [(None, self.gather)]
        for name, _ in pairs:
            if not isinstance(name, str) or isinstance(self.gather, str):
                raise TypeError(f"gather={self.gather!r}: expected a dict such as {{'attributes': ['age', 'weight']}}")
        vectors = tuple((name, name_tuple(f"gather: {name}", columns)) for name, columns in pairs)
        object.__setattr__(self, "gather", vectors)
        if self.delimiter is not None and (len(self.delimiter) != 1 or not self.delimiter.isascii()):
            raise ConfigError(f"delimiter={self.delimiter!r}: expected one ASCII character")

    def _describe(self) -> dict[str, Any]:
        described = {name: value for name, value in vars(self).items() if value is not None and value is not False}
        if self.root is not None:
            described["root"] = os.fspath(self.root)
        if self.delimiter is not None:
            described["delimiter"] = ord(self.delimiter)
        return described
