"""Field types, with the same names as in the Rust crate.

Masks, boxes, keypoints and dense maps use the coordinates of the sample's image, and are cropped,
resized, flipped and padded together with it. Masks are bit-identical to those of torchvision's v2
transforms with ``tv_tensors``, and boxes, keypoints and dense maps agree with them to 1e-4. Other
field types are delivered as they are stored. The suffix of a stored field's name is its encoding:
``x.npy``, ``x.json`` or ``x.txt``. A field without a suffix is a little-endian array.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Sequence

from ._error import ConfigError
from ._options import Arguments, dtype_name, one_of, texts
from ._types import Dtype

__all__ = [
    "Boxes", "DenseMap", "Geometry", "Image", "Keypoints", "Label", "Mask", "MultiHot", "NdArray", "Ragged", "Text",
    "TokenIds",
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
        raise TypeError(f"classes of a mask: {what} is {number!r}; expected a whole number") from None


def _stored(key: Any) -> int | list[int]:
    """Converts a key of the dict ``classes``, which is a value of a mask or a color, to an int or a
    list of ints."""
    return [_whole("a color", part) for part in key] if hasattr(key, "__iter__") else _whole("a value", key)


def _columns(columns: Any) -> tuple[tuple[str, Any], ...]:
    """Returns ``columns`` as pairs of a name and a type. Rejects strings, because a string of two
    letters would look like such a pair."""
    expected = f"columns={columns!r}: expected a dict of types by name, such as {{'class': 'i64'}}"
    if isinstance(columns, (str, bytes)) or not hasattr(columns, "__iter__"):
        raise TypeError(expected)
    pairs = tuple(columns)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise TypeError(expected)
    return tuple((name, dtype) for name, dtype in pairs)


@dataclass(frozen=True)
class Image(Arguments):
    """The image of the sample, or the image in its field ``of``. The options for images apply to
    this field.

    All images of a sample have the same crop and flip. Use the option ``views`` of the loader for
    several views of one image.
    """

    of: str | None = None

    def _describe(self) -> dict[str, Any]:
        return {"image": {"of": self.of}}


@dataclass(frozen=True)
class Label(Arguments):
    """The class as an integer, shape (N,). Use it for a field whose name is not ``label``."""

    def _describe(self) -> dict[str, Any]:
        return {"label": {}}


@dataclass(frozen=True)
class Geometry(Arguments):
    """The transform from the source image to the output image, to map predictions back: a matrix,
    f32 of shape (N, 2, 3). ``<name>.size``, i32 of shape (N, 2), holds the height and width of the
    upright source image.

    The matrix maps (x, y, 1) of the source image to (x, y) of the output image, in pixels from the
    edges. It includes crop, resize, padding and flips. :func:`boxes_to_source` maps boxes of the
    output image back.
    """

    def _describe(self) -> dict[str, Any]:
        return {"geometry": {}}


@dataclass(frozen=True)
class NdArray(Arguments):
    """An array of fixed shape: ``NdArray("f32", [768])`` is (N, 768). The shape ``[]`` is a scalar, (N).

    Fractions are rounded to the nearest value of the type; ``"f64"`` preserves 64-bit floats. A
    sample fails if one of its integers does not fit into the type.
    """

    dtype: Dtype
    shape: Sequence[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))

    def _describe(self) -> dict[str, Any]:
        return {"nd_array": {"dtype": dtype_name(self.dtype), "shape": self.shape}}


@dataclass(frozen=True)
class Ragged(Arguments):
    """A variable number of rows per sample, padded to shape (N, most, ...). ``<name>.count``, i64
    of shape (N,), holds the number of rows.

    Args:
        dtype: element type of the numbers and of ``padding``.
        row: shape of a row; ``[]`` for a scalar.
        most: maximum number of rows per sample.
        padding: value of missing rows; 0 by default.
        truncated: keeps the first ``most`` rows of a sample that has more. By default such a sample is an error.
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
    def bytes(cls, most: int, truncated: bool = False) -> Ragged:
        """The bytes of the stored field, such as a text or a file, as u8 of shape (N, most): at
        most ``most`` per sample. They are not decoded, whatever the suffix of the field's name."""
        return cls("u8", (), most, None, truncated, True)

    def __repr__(self) -> str:
        if self._plain:
            return f"Ragged.bytes({self.most}, truncated={self.truncated})"
        given = f"{self.dtype!r}, {self.row}, {self.most}, padding={self.padding!r}, truncated={self.truncated}"
        return f"Ragged({given})"

    def _describe(self) -> dict[str, Any]:
        described = {"dtype": dtype_name(self.dtype), "row": self.row, "most": self.most, "plain": self._plain}
        padding = None if self.padding is None else str(self.padding)
        return {"ragged": {**described, "padding": padding, "truncated": self.truncated}}


@dataclass(frozen=True)
class Mask(Arguments):
    """An integer for each pixel of the image, such as its class, of shape (N, H, W). Masks are
    resized with nearest-neighbor interpolation.

    The batch field ``mask`` is read from the sample's field ``mask``, ``mask.png`` (1- to 16-bit
    grayscale, or palette indices), ``mask.npy`` (booleans or integers), ``mask.tif``, ``mask.gif``,
    ``mask.bmp`` (indices of a palette) or ``mask.webp`` (lossless).

    ::

        Mask("i64", classes={0: 0, 255: 1})                               # 255 becomes class 1
        Mask("i64", classes={(0, 0, 0): 0, (128, 0, 0): 1}, ignore=255)   # colors of RGB masks

    Args:
        dtype: an integer type. A sample fails if its mask contains a value that the type cannot
            hold.
        of: name of the sample's field, if it differs from the name of the batch field.
        fill: value of the padding around the image (``Augment.letterbox``).
        classes: the number of classes, or a dict. With a number, the values of a mask must be 0 to
            ``classes`` - 1, ``fill`` or ``ignore``; otherwise the sample fails. A dict maps stored
            values, or colors (red, green, blue), to the values in the batch. A sample fails if its
            mask contains a value that is not in the dict, unless ``ignore`` is set.
        ignore: value of pixels that do not belong to any class. If ``classes`` is a dict,
            ``ignore`` replaces the values that are not in the dict.
    """

    dtype: Dtype
    of: str | None = None
    fill: int = 0
    classes: int | Mapping[Any, int] | Sequence[tuple[Any, int]] | None = None
    ignore: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.classes, Mapping):
            # Convert the dict, because fields must be hashable and the dict may change later.
            object.__setattr__(self, "classes", tuple(self.classes.items()))

    def _describe(self) -> dict[str, Any]:
        counted = self.classes is None or not hasattr(self.classes, "__iter__")
        values = [(_stored(key), _whole("a class", value)) for key, value in (() if counted else self.classes)]  # type: ignore[union-attr]
        if not counted and not values:
            raise ConfigError("classes={}: expected at least one value of the mask")
        described = {"dtype": dtype_name(self.dtype), "of": self.of, "fill": self.fill, "ignore": self.ignore}
        return {"mask": {**described, "classes": self.classes if counted else None, "map": values}}


@dataclass(frozen=True)
class DenseMap(Arguments):
    """One or more floats for each pixel of the image, such as depth or a heat map, as f32 of shape
    (N, H, W). With ``channels``, the shape follows the layout of the images: (N, C, H, W), or (N,
    H, W, C) with ``layout="nhwc"``. The resize uses the same filter as for images, antialiased
    bilinear.

    The sample's field is a PNG or TIFF, or an ``.npy`` of shape (height, width), or (height, width, C).
    Values are delivered as stored, without scaling, whether they are 8-bit integers, 16-bit
    integers or floats. For example, white in a 16-bit image is 65535. ``Loader("scans",
    fields={"image": DenseMap(1, image=True)})`` loads 16-bit images, ``DenseMap(4, image=True)``
    loads RGBA images, and ``DenseMap(13, image=True)`` loads TIFFs with 13 bands. Only geometric
    operations change a dense map.

    Args:
        channels: number of values per pixel; None for one value without a channel axis.
        nearest: uses the nearest pixel, for values that must not be averaged.
        fill: value of the padding around the image.
        of: name of the sample's field, if it differs from the name of the batch field.
        image: reads the image of the sample, a PNG or TIFF, instead of a field.
    """

    channels: int | None = None
    nearest: bool = False
    fill: float = 0.0
    of: str | None = None
    image: bool = False
    _flow: bool = field(default=False, repr=False)
    _layout: str = field(default="nhwc", repr=False)

    def _laid_out(self, layout: str) -> DenseMap:
        return replace(self, _layout=layout)

    @classmethod
    def flow(cls, nearest: bool = False, fill: float = 0.0) -> DenseMap:
        """Optical flow with two channels: the displacement of each pixel to the right and down, in
        pixels. Resizing scales the displacements, and a flip negates those along its axis."""
        return cls(2, nearest, fill, _flow=True)

    def __repr__(self) -> str:
        begin = "DenseMap.flow(" if self._flow else f"DenseMap(channels={self.channels}, "
        of = "" if self.of is None else f", of={self.of!r}"
        return f"{begin}nearest={self.nearest}, fill={self.fill!r}{of}{', image=True' if self.image else ''})"

    def _describe(self) -> dict[str, Any]:
        if self.image and self.of is not None:
            raise ConfigError(f"DenseMap(of={self.of!r}, image=True): set one of them")
        of = "same" if self.of is None else {"named": self.of}
        described: dict[str, Any] = {"channels": self.channels, "nearest": self.nearest, "fill": str(float(self.fill))}
        described.update(of="image" if self.image else of, flow=self._flow, layout=self._layout)
        return {"dense_map": described}


@dataclass(frozen=True)
class Keypoints(Arguments):
    """Keypoints of the image, such as the landmarks of a face: (N, K, 2) f32, x and y in pixels
    of the output image. A point outside the crop is kept, with coordinates outside the output.

    Args:
        count: K, the number of points per sample.
        visibility: adds a third number to each point, (N, K, 3): 0 for unlabeled, 1 for hidden, 2
            for visible. A point outside the crop becomes (0, 0, 0).
        flip_pairs: points that are exchanged in a mirrored image: ``[(0, 1)]`` for two eyes.
    """

    count: int
    visibility: bool = False
    flip_pairs: Pairs = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "flip_pairs", _pairs(self.flip_pairs))

    def _describe(self) -> dict[str, Any]:
        skeleton = {"count": self.count, "pairs": self.flip_pairs}
        return {"keypoints": {"skeleton": skeleton, "visibility": self.visibility}}


@dataclass(frozen=True)
class Boxes(Arguments):
    """The boxes of a sample, with their classes, masks and keypoints.

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
    points. The remaining boxes keep their order.

    Args:
        most: maximum number of boxes per sample.
        columns: names and types of additional values for each box, such as ``{"class": "i64",
            "crowd": "u8"}``.
        from_, to: format of the four numbers in the sample and in the batch: ``"xyxy"`` (left,
            upper, right and lower edge), ``"xywh"`` or ``"cxcywh"``.
        relative: whether the sample stores coordinates as fractions of the image's width and height.
        to_relative: delivers boxes as fractions of the output's width and height, not in pixels.
        min_visible: drops a box if less than this fraction of its area is inside the crop.
        min_size: drops a box if its width or height in the output is less than this, in pixels.
        masks: adds a mask for each box, with a 0 or 1 for each pixel of the output.
        points: adds this number of keypoints for each box. Each has x, y, and the visibility: 0 for
            unlabeled, 1 for hidden, 2 for visible.
        flip_pairs: points that are exchanged in a mirrored image.
        truncated: keeps the first ``most`` boxes of a sample that has more. By default such a sample is an error.
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
class MultiHot(Arguments):
    """Several labels per sample, of shape (N, classes): each row contains 1 for each label and 0
    elsewhere.

    The sample's field lists the labels as comma-separated text, a JSON list, or an array of
    integers. Each label is the name of a class or its index.

    Args:
        classes: the class names, or the number of classes.
        dtype: element type of the row.
        separator: character between labels in a text, such as ``"|"`` or ``";"``; ``" "`` stands
            for any whitespace. By default, labels are separated by commas, or by whitespace if they
            are numbers without commas.
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
class Text(Arguments):
    """One string per sample, such as a caption. Delivered as a list of N ``str``, also in batches
    on a device.

    The sample's field is UTF-8, such as ``caption.txt``, or a column of a table. Texts of any length are
    delivered unchanged. ``Ragged.bytes`` delivers the bytes of a text as an array.

    Args:
        of: name of the sample's field, if it differs from the name of the batch field.
    """

    of: str | None = None

    def _describe(self) -> dict[str, Any]:
        return {"text": {"of": self.of}}


@dataclass(frozen=True)
class TokenIds(Arguments):
    """The tokens of a window of :class:`Tokens`, of shape (N, length).

    ``end`` adds two arrays, both i32 of shape (N, length). ``<name>.document`` contains the index
    of each token's document within the window, starting at 0. ``<name>.position`` contains the
    position of each token within its document, or within the window if the document began before
    the window. The mask for attention within packed documents is ``document[:, :, None] ==
    document[:, None, :]``.

    Args:
        length: number of tokens per window.
        dtype: ``"i64"``, ``"i32"`` or ``"u16"``.
        end: the token that ends a document. The token is itself part of the document.
        vocabulary: size of the vocabulary. A sample fails if it contains a token outside the
            vocabulary.
    """

    length: int
    dtype: Any = "i64"
    end: int | None = None
    vocabulary: int | None = None

    def _describe(self) -> dict[str, Any]:
        described = {"length": self.length, "end": self.end, "vocabulary": self.vocabulary}
        return {"tokens": {**described, "dtype": dtype_name(self.dtype)}}


def check_none_follows(fields: Mapping[str, Any], moves: bool | None) -> None:
    """If ``image_transform`` may move pixels, raises an error for fields that must move with the
    image."""
    for name, kind in fields.items():
        if isinstance(kind, (Mask, DenseMap, Keypoints, Boxes, Geometry)):
            raise ConfigError(
                f"fields={{{name!r}: {type(kind).__name__}(...)}} follows the image, but not image_transform=f"
                + (", which moves pixels (image_transform_moves_pixels=True). Move them with augment, which the field follows"
                   if moves else
                   ". If f moves no pixels, as a change of colors does not, pass image_transform_moves_pixels=False. "
                   "Otherwise move pixels with augment, which the field follows")
            )  # fmt: skip


def check_images(
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    fields: Mapping[str, Any],
    drop_field: Sequence[str],
    views: Any,
) -> None:
    """Raises an error for ``augment`` in a loader that does not read images. The native module
    rejects the other image options."""
    reads = any(isinstance(kind, (Geometry, Image, DenseMap, Mask)) for kind in fields.values())
    if "image" not in drop_field or views is not None or reads:
        return
    if given["augment"] is not defaults["augment"]:
        raise ConfigError("augment: the loader reads no images; leave augment out")
