"""Kinds of fields, under the names of the Rust crate.

Masks, boxes, points and maps lie in the coordinates of the sample's image. They follow its crop,
resize, flip and padding. Masks equal torchvision's v2 with ``tv_tensors`` bit for bit; the others
agree to 1e-4. The other kinds are delivered as they are stored. The suffix of a stored field's name
is its encoding: ``x.npy``, ``x.json``, ``x.txt``, and without a suffix a little-endian array.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Sequence

from ._error import ConfigError
from ._options import dtype_name, one_of, texts
from ._types import Dtype

__all__ = [
    "Boxes", "Geometry", "Image", "Label", "Map", "Mask", "MultiHot", "Numbers", "Points", "Rows", "Text", "TokenIds"
]  # fmt: skip

Pairs = Sequence[tuple[int, int]]

#: Meanings of the four numbers of a box.
_FORMATS = ("xyxy", "xywh", "cxcywh")


def _pairs(pairs: Pairs) -> tuple[tuple[int, int], ...]:
    return tuple((int(one), int(other)) for one, other in pairs)


def _whole(what: str, number: Any) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"classes of a mask: {what} is {number!r}; want a whole number") from None


def _stored(key: Any) -> int | list[int]:
    """A value of a mask, or a color."""
    return [_whole("a color", part) for part in key] if hasattr(key, "__iter__") else _whole("a value", key)


def _columns(columns: Any) -> tuple[tuple[str, Any], ...]:
    """Pairs of a name and a type. A text of two letters would be taken for a pair of them."""
    wanted = f"columns={columns!r}: want a dict of types by name, such as {{'class': 'i64'}}"
    if isinstance(columns, (str, bytes)) or not hasattr(columns, "__iter__"):
        raise TypeError(wanted)
    pairs = tuple(columns)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise TypeError(wanted)
    return tuple((name, dtype) for name, dtype in pairs)


@dataclass(frozen=True)
class Image:
    """An image: the sample's own, or the one in its field ``of``. It is delivered like the images.

    All images of a sample get the same crop and flip. For several views of one image use the
    option ``views`` of the loader.
    """

    of: str | None = None

    def _describe(self) -> dict[str, Any]:
        return {"image": {"of": self.of}}


@dataclass(frozen=True)
class Label:
    """The class as an integer, (N), in a field of another name than ``label``."""

    def _describe(self) -> dict[str, Any]:
        return {"label": {}}


@dataclass(frozen=True)
class Geometry:
    """Where the image lies in the image, to map predictions back: a matrix (N, 2, 3) f32, and
    ``<name>.size``, (N, 2) i32, the height and width of the upright image.

    The matrix maps (x, y, 1) of the image to (x, y) of the image, in pixels from the edges, with
    crop, resize, padding and flips. :func:`boxes_to_source` maps boxes of the image back.
    """

    def _describe(self) -> dict[str, Any]:
        return {"geometry": {}}


@dataclass(frozen=True)
class Numbers:
    """An array of one shape: ``Numbers("f32", [768])`` is (N, 768); a shape of ``[]`` gives (N).

    Fractions are rounded to the nearest value of the type; ``"f64"`` keeps 64-bit floats. A whole number
    that the type would change is an error.
    """

    dtype: Dtype
    shape: Sequence[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))

    def _describe(self) -> dict[str, Any]:
        return {"numbers": {"dtype": dtype_name(self.dtype), "shape": self.shape}}


@dataclass(frozen=True)
class Rows:
    """A varying number of rows per sample, (N, most, ...), and ``<name>.count``, (N) i64.

    Args:
        dtype: element type of the numbers and of ``padding``.
        row: the shape of a row; ``[]`` for one number.
        most: maximum number of rows of a sample.
        padding: the value where there is no row; 0 by default.
        truncated: drops further rows. Without it a sample with more rows is an error.
    """

    dtype: Dtype
    row: Sequence[int] = ()
    most: int = 1
    padding: float | int | None = None
    truncated: bool = False
    _plain: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "row", tuple(self.row))

    @classmethod
    def bytes(cls, most: int, truncated: bool = False) -> Rows:
        """The bytes of the stored field, at most ``most`` per sample, (N, most) u8: text, or any
        file. They are not decoded, whatever the suffix of the field's name."""
        return cls("u8", (), most, None, truncated, True)

    def __repr__(self) -> str:
        if self._plain:
            return f"Rows.bytes({self.most}, truncated={self.truncated})"
        given = f"{self.dtype!r}, {self.row}, {self.most}, padding={self.padding!r}, truncated={self.truncated}"
        return f"Rows({given})"

    def _describe(self) -> dict[str, Any]:
        described = {"dtype": dtype_name(self.dtype), "row": self.row, "most": self.most, "plain": self._plain}
        padding = None if self.padding is None else str(self.padding)
        return {"rows": {**described, "padding": padding, "truncated": self.truncated}}


@dataclass(frozen=True)
class Mask:
    """An integer per pixel of the image, such as a class, (N, H, W). Resizing takes the nearest.

    The batch field ``mask`` is read from the sample's field ``mask``, ``mask.png`` (gray of 1 to 16
    bits, or the indices of a palette), ``mask.npy`` (booleans or integers), ``mask.tif``,
    ``mask.gif``, ``mask.bmp`` (indices of a palette) or ``mask.webp`` (lossless).

    ::

        Mask("i64", classes={0: 0, 255: 1})                               # 255 becomes class 1
        Mask("i64", classes={(0, 0, 0): 0, (128, 0, 0): 1}, ignore=255)   # colors of RGB masks

    Args:
        dtype: an integer type. A value that it cannot hold is an error.
        of: the sample's field, if its name differs from the batch's.
        fill: the value where the image does not cover the output (``Augment.letterbox``).
        classes: a number makes values other than 0 to ``classes`` - 1, ``fill`` and ``ignore`` an error.
            A dict maps stored values, or colors (red, green, blue), to the values of the batch.
            What it does not map is an error, unless ``ignore`` is set.
        ignore: the value of pixels that belong to no class. With a dict of ``classes`` it replaces
            everything that is not in the dict.
    """

    dtype: Dtype
    of: str | None = None
    fill: int = 0
    classes: int | Mapping[Any, int] | Sequence[tuple[Any, int]] | None = None
    ignore: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.classes, Mapping):
            # Fields are hashable, and a dict may change later.
            object.__setattr__(self, "classes", tuple(self.classes.items()))

    def _describe(self) -> dict[str, Any]:
        counted = self.classes is None or not hasattr(self.classes, "__iter__")
        values = [(_stored(key), _whole("a class", value)) for key, value in (() if counted else self.classes)]  # type: ignore[union-attr]
        if not counted and not values:
            raise ConfigError("classes={}: a map of the values of a mask needs at least one of them")
        described = {"dtype": dtype_name(self.dtype), "of": self.of, "fill": self.fill, "ignore": self.ignore}
        return {"mask": {**described, "classes": self.classes if counted else None, "map": values}}


@dataclass(frozen=True)
class Map:
    """Floats in the coordinates of the image, such as depth or heat: (N, H, W) f32, or with
    ``channels`` in the layout of the images: (N, C, H, W), or (N, H, W, C) with ``layout="nhwc"``. The
    filter is that of images: antialiased bilinear.

    The sample's field is a PNG or TIFF, or an ``.npy`` of shape (height, width), or (height, width, C).
    The values are those that are stored, of 8 bits, 16 bits or floats, and are not scaled: white of
    16 bits is 65535. ``Loader("scans", fields={"image": Map(1, image=True)})`` loads images of
    16 bits, ``Map(4, image=True)`` RGBA, and ``Map(13, image=True)`` TIFFs of 13 bands. Only
    geometric operations change a map.

    Args:
        channels: number of values per pixel; None is one value without an axis.
        nearest: takes the nearest pixel, for values that must not be averaged.
        fill: the value where the image does not cover the output.
        of: the sample's field, if it has another name than the field of the batch.
        image: reads the sample's image itself, a PNG or TIFF.
    """

    channels: int | None = None
    nearest: bool = False
    fill: float = 0.0
    of: str | None = None
    image: bool = False
    _flow: bool = field(default=False, repr=False)
    _layout: str = field(default="nhwc", repr=False)

    def _laid_out(self, layout: str) -> Map:
        return replace(self, _layout=layout)

    @classmethod
    def flow(cls, nearest: bool = False, fill: float = 0.0) -> Map:
        """Optical flow, two channels: the displacement of each pixel to the right and down, in
        pixels. The resize scales it, and a flip changes the sign along its axis."""
        return cls(2, nearest, fill, _flow=True)

    def __repr__(self) -> str:
        begin = "Map.flow(" if self._flow else f"Map(channels={self.channels}, "
        of = "" if self.of is None else f", of={self.of!r}"
        return f"{begin}nearest={self.nearest}, fill={self.fill!r}{of}{', image=True' if self.image else ''})"

    def _describe(self) -> dict[str, Any]:
        if self.image and self.of is not None:
            raise ConfigError(f"Map(of={self.of!r}, image=True): set one of them")
        of = "same" if self.of is None else {"named": self.of}
        described: dict[str, Any] = {"channels": self.channels, "nearest": self.nearest, "fill": str(float(self.fill))}
        described.update(of="image" if self.image else of, flow=self._flow, layout=self._layout)
        return {"map": described}


@dataclass(frozen=True)
class Points:
    """Key points of the image, such as the landmarks of a face: (N, K, 2) f32, x and y in pixels
    of the output. A point outside the crop keeps its coordinates.

    Args:
        count: K, the number of points of a sample.
        visibility: adds a third number to each point, (N, K, 3): 0 unlabeled, 1 hidden, 2 visible.
            A point outside the crop becomes (0, 0, 0).
        flip_pairs: points that swap in a mirrored image: ``[(0, 1)]`` for two eyes.
    """

    count: int
    visibility: bool = False
    flip_pairs: Pairs = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "flip_pairs", _pairs(self.flip_pairs))

    def _describe(self) -> dict[str, Any]:
        skeleton = {"count": self.count, "pairs": self.flip_pairs}
        return {"points": {"skeleton": skeleton, "visibility": self.visibility}}


@dataclass(frozen=True)
class Boxes:
    """The boxes of a sample, with their classes, masks and key points.

    For up to ``most`` boxes per sample, the field ``boxes`` becomes these arrays:

    =================  ==================  ================  =======================================
    array              shape               dtype             padding
    =================  ==================  ================  =======================================
    ``boxes``          (N, most, 4)        f32               0
    ``boxes.count``    (N)                 i64
    ``boxes.class``    (N, most)           as chosen         -1, or 0 for unsigned types and floats
    ``boxes.masks``    (N, most, H, W)     u8                0
    ``boxes.points``   (N, most, K, 3)     f32               0
    =================  ==================  ================  =======================================

    Boxes are clipped to the crop. A box outside the crop is dropped with its columns, mask and
    points; the others keep their order.

    Args:
        most: maximum number of boxes. A sample with more is an error, unless ``truncated``.
        columns: numbers of each box, by name with their type: ``{"class": "i64", "crowd": "u8"}``.
        from_, to: format of the four numbers in the sample and in the batch: ``"xyxy"`` (left,
            upper, right and lower edge), ``"xywh"`` or ``"cxcywh"``.
        relative: coordinates are stored as fractions of the image's width and height.
        to_relative: delivers boxes as fractions of the output's width and height, not in pixels.
        min_visible: drops a box if less than this share of its area is left.
        min_size: drops a box whose width or height in the output is less than this, in pixels.
        masks: adds a mask of each box, 0 or 1 in each pixel of the output.
        points: adds this many key points of each box: x, y, and 0 unlabeled, 1 hidden, 2 visible.
        flip_pairs: points that swap in a mirrored image.
        truncated: takes the first ``most`` boxes of a sample that has more.
    """

    most: int
    columns: Mapping[str, Any] | Sequence[tuple[str, Any]] = ()
    from_: str = "xyxy"
    to: str = "xyxy"
    relative: bool = False
    to_relative: bool = False
    min_visible: float = 0.0
    min_size: float = 0.0
    masks: bool = False
    points: int | None = None
    flip_pairs: Pairs = ()
    truncated: bool = False

    def __post_init__(self) -> None:
        columns = self.columns.items() if isinstance(self.columns, Mapping) else self.columns
        object.__setattr__(self, "columns", _columns(columns))
        object.__setattr__(self, "flip_pairs", _pairs(self.flip_pairs))

    def _describe(self) -> dict[str, Any]:
        described = {**vars(self), "columns": [(name, dtype_name(dtype)) for name, dtype in dict(self.columns).items()]}
        described["to"] = one_of("to", described["to"], _FORMATS)
        described["reader"] = {
            "format": one_of("from_", described.pop("from_"), _FORMATS), "relative": described.pop("relative")
        }  # fmt: skip
        points, pairs = self.points, described.pop("flip_pairs")
        described["points"] = {"count": points or 0, "pairs": pairs} if points is not None or pairs else None
        return {"boxes": described}


@dataclass(frozen=True)
class MultiHot:
    """Several labels per sample, as a row with 1 at each label and 0 elsewhere, (N, classes).

    The sample's field lists the labels: text with commas between them, a JSON list, or an array of
    integers. Each is the name of a class or its number.

    Args:
        classes: names of the classes, or their number.
        dtype: element type of the row.
        separator: the character between two labels of a text, such as ``"|"`` or ``";"``; ``" "`` is any
            white space. The default is a comma, or white space between numbers without commas.
    """

    classes: Sequence[str] | int
    dtype: Dtype = "f32"
    separator: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.classes, int):
            object.__setattr__(self, "classes", texts("classes", self.classes))

    def _describe(self) -> dict[str, Any]:
        return {"multi_hot": {"classes": self.classes, "dtype": dtype_name(self.dtype), "separator": self.separator}}


@dataclass(frozen=True)
class Text:
    """A text per sample, such as a caption: a list of N ``str``, also in batches on a device.

    The sample's field is UTF-8, such as ``caption.txt``, or a column of a table. It is delivered as it
    is stored, of any length. ``Rows.bytes`` delivers the bytes of a text as an array.

    Args:
        of: the sample's field, if its name differs from the batch's.
    """

    of: str | None = None

    def _describe(self) -> dict[str, Any]:
        return {"text": {"of": self.of}}


@dataclass(frozen=True)
class TokenIds:
    """Tokens of a window of :class:`Tokens`, (N, length).

    With ``end`` there are two more arrays, (N, length) i32: ``<name>.document`` numbers the documents of
    a window from 0, and ``<name>.position`` is the position of a token in its document, or in the window
    for the document that began before it. Attention within packed documents is
    ``document[:, :, None] == document[:, None, :]``.

    Args:
        length: number of tokens.
        dtype: ``"i64"``, ``"i32"`` or ``"u16"``.
        end: the token that ends a document; it is the last token of its document.
        vocabulary: number of tokens of the vocabulary. A token that is not below it is an error.
    """

    length: int
    dtype: Any = "i64"
    end: int | None = None
    vocabulary: int | None = None

    def _describe(self) -> dict[str, Any]:
        described = {"length": self.length, "end": self.end, "vocabulary": self.vocabulary}
        return {"tokens": {**described, "dtype": dtype_name(self.dtype)}}


def check_none_follows(fields: Mapping[str, Any], moves: bool | None) -> None:
    """Refuses a field that follows the image, in a loader whose ``transform`` may move pixels."""
    for name, kind in fields.items():
        if isinstance(kind, (Mask, Map, Points, Boxes, Geometry)):
            raise ConfigError(
                f"fields={{{name!r}: {type(kind).__name__}(...)}} follows the image, but not transform=f"
                + (", which moves pixels (transform_moves_pixels=True). Move them with augment, which the field follows"
                   if moves else
                   ". If f leaves each pixel in its place, as a change of colors does, pass transform_moves_pixels=False. "
                   "Otherwise move pixels with augment, which the field follows")
            )  # fmt: skip


def check_images(
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    fields: Mapping[str, Any],
    without: Sequence[str],
    views: Any,
) -> None:
    """Refuses options of images in a loader that reads none. The native part refuses those of images."""
    reads = any(isinstance(kind, (Geometry, Image, Map, Mask)) for kind in fields.values())
    if "image" not in without or views is not None or reads:
        return
    if given["augment"] is not defaults["augment"]:
        raise ConfigError("augment changes images, and the loader reads none: leave it out")
