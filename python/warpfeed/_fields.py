"""Field types, with the same names as in the Rust crate.

Masks, boxes, keypoints and dense maps are cropped, resized, flipped and padded together with the
image of their sample. Masks are bit-identical to the results of torchvision's v2 transforms with
``tv_tensors``; boxes, keypoints and dense maps agree with torchvision to 1e-4. Except for ``Image``
and ``Geometry``, the other field types do not depend on the crop. The suffix of a stored field's
name gives its encoding, as in ``x.npy``, ``x.json``, ``x.txt`` or ``x.png``. Without a suffix, text
is a list of numbers, and bytes are an array in NumPy's format, or a little-endian array without a
header.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Sequence

from ._error import ConfigError
from ._options import Arguments, dtype_name, integer, name_tuple, normalization, one_of
from ._types import Dtype

__all__ = [
    "Boxes", "DenseMap", "Geometry", "Image", "Keypoints", "Label", "Mask", "MultiHot", "NdArray", "PackedIds",
    "Patches", "Ragged", "Text", "TokenIds",
]  # fmt: skip

Pairs = Sequence[tuple[int, int]]

_FORMATS = ("xyxy", "xywh", "cxcywh")


def _pairs(pairs: Pairs) -> tuple[tuple[int, int], ...]:
    return tuple((int(left), int(right)) for left, right in pairs)


def _shape(name: str, shape: Sequence[int] | int) -> tuple[int, ...]:
    """Converts a shape to a tuple. A number is the length of the only axis."""
    if hasattr(shape, "__iter__") and not isinstance(shape, (str, bytes)):
        return tuple(shape)
    return (integer(name, shape),)


def _check_frames(kind: str, frames: int | None) -> None:
    if frames is not None and operator.index(frames) < 1:
        raise ConfigError(f"{kind}: frames={frames}: expected at least 1")


def _mask_integer(what: str, number: Any) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"classes of a mask: {what} is {number!r}; expected a whole number") from None


def _mask_key(key: Any) -> int | list[int]:
    """Converts a key of the dict ``classes``: a value of a mask, or a color."""
    if hasattr(key, "__iter__"):
        return [_mask_integer("a component of a color", component) for component in key]
    return _mask_integer("a value", key)


def _columns(columns: Any) -> tuple[tuple[str, Any], ...]:
    """Converts ``columns`` to (name, type) pairs. Rejects strings, because a string of two letters
    would be mistaken for a pair."""
    expected = f"columns={columns!r}: expected a dict of types by name, such as {{'class': 'i64'}}"
    if isinstance(columns, (str, bytes)) or not hasattr(columns, "__iter__"):
        raise TypeError(expected)
    pairs = tuple(columns)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise TypeError(expected)
    return tuple((name, dtype) for name, dtype in pairs)


@dataclass(frozen=True)
class Image(Arguments):
    """The image of the sample, or the image in the sample's field ``source_field``. The image
    options of the loader, such as ``dtype`` and ``normalize``, apply to the field.

    All image fields of a sample use the same random numbers, so images of the same size get the
    same crop and flip. To load several views of one image, use the ``views`` option of the loader.

    Args:
        source_field: name of the sample's field; by default, the first field that is named after an
            image format.
        frames: makes the field a clip of exactly ``frames`` frames, such as the frames of a video
            or of a robot's camera. The batch has an array of shape (N, T, H, W, 3) or (N, T, 3, H,
            W). All frames get the same crop, resize, flip and effects. In a Python dataset,
            ``__getitem__`` returns a list of T images for this field. For a list of paths, arrays
            or tensors, the field must be ``image``, or its name must end in the extension of an
            image format, as in ``source_field="clip.jpg"``. A sample with a different number of
            frames, or with frames of different sizes, fails. Clips cannot be mixed (MixUp, CutMix)
            or combined (mosaics, copy-paste).
    """

    source_field: str | None = None
    frames: int | None = None

    def __post_init__(self) -> None:
        _check_frames("Image", self.frames)

    def _describe(self) -> dict[str, Any]:
        return {"image": {"source_field": self.source_field, "frames": self.frames}}


@dataclass(frozen=True)
class Label(Arguments):
    """The class index, as i64 of shape (N,). Use this type to deliver the label under a name other
    than ``label``."""

    def _describe(self) -> dict[str, Any]:
        return {"label": {}}


@dataclass(frozen=True)
class Geometry(Arguments):
    """The affine transform from the source image to the output image, for mapping predictions back:
    a matrix per sample, f32 of shape (N, 2, 3). ``<name>.size``, i32 of shape (N, 2), contains the
    height and width of the source image after its EXIF rotation.

    The matrix maps (x, y, 1) in the source image to (x, y) in the output image. Coordinates are in
    pixels and are measured from the left and upper edges, so x ranges from 0 to the width. The
    matrix includes the crop, the resize, the padding and the flips. A sample fails if a geometric
    effect such as a rotation is applied to it. :func:`boxes_to_source` maps boxes in the output
    image back.
    """

    def _describe(self) -> dict[str, Any]:
        return {"geometry": {}}


@dataclass(frozen=True)
class NdArray(Arguments):
    """An array of fixed shape. ``NdArray("f32", [768])`` delivers an array of shape (N, 768). With
    the shape ``[]``, each sample has one number, and the batch an array of shape (N,). The shape
    768 is the same as ``[768]``.

    Float types round a number with a fractional part to the nearest value; ``"f64"`` preserves
    64-bit floats. Integer types reject such a number. ``"f32"`` and ``"f64"`` reject integers that
    they cannot represent exactly, whereas ``"f16"`` and ``"bf16"`` round them. A sample fails if
    one of its numbers is out of the range of the type.
    """

    dtype: Dtype
    shape: Sequence[int] | int = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _shape("shape", self.shape))

    def _describe(self) -> dict[str, Any]:
        return {"nd_array": {"dtype": dtype_name(self.dtype), "shape": self.shape}}


@dataclass(frozen=True)
class Ragged(Arguments):
    """A variable number of rows per sample, padded to shape (N, max_rows, ...). ``<name>.count``,
    i64 of shape (N,), contains the number of rows of each sample.

    Args:
        dtype: element type.
        row_shape: shape of a row; ``[]`` if a row is a single number. The shape 4 is the same as
            ``[4]``.
        max_rows: maximum number of rows per sample; 1 by default.
        padding: value that fills missing rows; 0 by default.
        truncate: keeps only the first ``max_rows`` rows of a sample. By default, a sample with
            more rows fails.
    """

    dtype: Dtype
    row_shape: Sequence[int] | int = ()
    max_rows: int = 1
    padding: float | int | None = None
    truncate: bool = False
    _plain: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "row_shape", _shape("row_shape", self.row_shape))

    @classmethod
    def bytes(cls, max_rows: int, truncate: bool = False) -> Ragged:
        """Returns the type of a field that delivers stored bytes, such as text or a file, as u8 of
        shape (N, max_rows). The bytes are not decoded, regardless of the suffix of the field's
        name."""
        return cls("u8", (), max_rows, None, truncate, True)

    def __repr__(self) -> str:
        if self._plain:
            return f"Ragged.bytes({self.max_rows}, truncate={self.truncate})"
        values = f"{self.dtype!r}, {self.row_shape}, {self.max_rows}, padding={self.padding!r}, truncate={self.truncate}"
        return f"Ragged({values})"

    def _describe(self) -> dict[str, Any]:
        described = {"dtype": dtype_name(self.dtype), "row_shape": self.row_shape, "max_rows": self.max_rows}
        padding = None if self.padding is None else str(self.padding)
        return {"ragged": {**described, "padding": padding, "truncate": self.truncate, "plain": self._plain}}


@dataclass(frozen=True)
class Mask(Arguments):
    """An integer for each pixel of the image, such as a class index, as an array of shape (N, H,
    W). Masks are resized with nearest-neighbor interpolation.

    The ``mask`` batch field is read from the sample's field ``mask``, ``mask.png`` (1- to 16-bit
    grayscale, or palette indices), ``mask.npy`` (booleans or integers, but not ``uint64``),
    ``mask.tif``, ``mask.tiff``, ``mask.gif``, ``mask.bmp`` (palette indices) or ``mask.webp``
    (lossless).

    ::

        Mask("i64", classes={0: 0, 255: 1})                               # 255 becomes class 1
        Mask("i64", classes={(0, 0, 0): 0, (128, 0, 0): 1}, ignore=255)   # colors of RGB masks

    Args:
        dtype: an integer type. A sample fails if a value in its mask does not fit into this type.
        source_field: name of the sample's field, if it differs from the name of the batch field.
        fill: value of the padding around the image, for example with ``Augment.letterbox``.
        classes: the number of classes, or a dict. With a number, a sample fails if its mask
            contains a value other than 0 to ``classes`` - 1, ``fill`` and ``ignore``. A dict maps
            stored values, or colors (red, green, blue), to the values in the batch. A sample fails
            if its mask contains a value that is not in the dict, unless ``ignore`` is set.
        ignore: value of pixels that do not belong to any class. If ``classes`` is a dict,
            ``ignore`` replaces every value that is not in the dict.
        frames: delivers one mask for each of the T frames of an ``Image(frames=T)``, of shape (N,
            T, H, W). A sample has an array of shape (T, height, width), or a list of T encoded
            files. By default, a clip has one mask.
    """

    dtype: Dtype
    source_field: str | None = None
    fill: int = 0
    classes: int | Mapping[Any, int] | Sequence[tuple[Any, int]] | None = None
    ignore: int | None = None
    frames: int | None = None

    def __post_init__(self) -> None:
        _check_frames("Mask", self.frames)
        if isinstance(self.classes, Mapping):
            # Convert the dict, because fields must be hashable and the dict may change later.
            object.__setattr__(self, "classes", tuple(self.classes.items()))

    def _describe(self) -> dict[str, Any]:
        is_count = self.classes is None or not hasattr(self.classes, "__iter__")
        pairs: Any = () if is_count else self.classes
        values = [(_mask_key(key), _mask_integer("a class", value)) for key, value in pairs]
        if not is_count and not values:
            raise ConfigError("classes={}: expected at least one entry")
        described = {
            "dtype": dtype_name(self.dtype), "source_field": self.source_field, "fill": self.fill, "ignore": self.ignore,
            "frames": self.frames,
        }  # fmt: skip
        return {"mask": {**described, "classes": self.classes if is_count else None, "map": values}}


@dataclass(frozen=True)
class DenseMap(Arguments):
    """One or more floats for each pixel of the image, such as depth or a heat map, as f32 of shape
    (N, H, W). With ``channels``, the shape follows the layout of the images: (N, C, H, W), or (N,
    H, W, C) with ``layout="nhwc"``. Dense maps are resized with the same antialiased bilinear
    filter as images.

    The sample's field is a PNG or TIFF, or an ``.npy`` of shape (height, width) or (height, width,
    C). 8-bit integers, 16-bit integers and floats are delivered as stored, without scaling. For
    example, white in a 16-bit image is 65535. ``Loader("scans",
    fields={"image": DenseMap(1, image=True)})`` loads 16-bit images, ``DenseMap(4, image=True)``
    loads RGBA images, and ``DenseMap(13, image=True)`` loads TIFFs with 13 bands. Color operations
    do not affect dense maps.

    Args:
        channels: number of values per pixel; None for a single value without a channel axis.
        nearest: resizes with nearest-neighbor interpolation, for values that must not be averaged.
        fill: value of the padding around the image.
        source_field: name of the sample's field, if it differs from the name of the batch field.
        image: reads the image of the sample, which must be a PNG or TIFF, instead of a field.
        frames: delivers one map for each of the T frames of an ``Image(frames=T)``, with an axis
            for the frames after N. A sample has an array of shape (T, height, width) or (T, height,
            width, C), or a list of T encoded files. By default, a clip has one map.
    """

    channels: int | None = None
    nearest: bool = False
    fill: float = 0.0
    source_field: str | None = None
    image: bool = False
    frames: int | None = None
    _flow: bool = field(default=False, repr=False)
    _layout: str = field(default="nhwc", repr=False)

    def __post_init__(self) -> None:
        _check_frames("DenseMap", self.frames)

    def _with_layout(self, layout: str) -> DenseMap:
        return replace(self, _layout=layout)

    @classmethod
    def flow(cls, nearest: bool = False, fill: float = 0.0, frames: int | None = None) -> DenseMap:
        """Returns the type of an optical flow field. Its two channels are the displacements of each
        pixel to the right and down, in pixels. A resize also scales the displacements. A horizontal
        flip negates the first channel, and a vertical flip negates the second."""
        return cls(2, nearest, fill, frames=frames, _flow=True)

    def __repr__(self) -> str:
        begin = "DenseMap.flow(" if self._flow else f"DenseMap(channels={self.channels}, "
        source = "" if self.source_field is None else f", source_field={self.source_field!r}"
        frames = "" if self.frames is None else f", frames={self.frames}"
        return f"{begin}nearest={self.nearest}, fill={self.fill!r}{source}{', image=True' if self.image else ''}{frames})"

    def _describe(self) -> dict[str, Any]:
        if self.image and self.source_field is not None:
            raise ConfigError(
                f"DenseMap(source_field={self.source_field!r}, image=True): both select the field to read; set one of them"
            )
        source = "same" if self.source_field is None else {"named": self.source_field}
        described: dict[str, Any] = {"source_field": "image" if self.image else source, "channels": self.channels}
        described.update(nearest=self.nearest, fill=str(float(self.fill)))
        described.update(flow=self._flow, layout=self._layout, frames=self.frames)
        return {"dense_map": described}


@dataclass(frozen=True)
class Keypoints(Arguments):
    """Keypoints of the image, such as the landmarks of a face, as f32 of shape (N, K, 2): x and y
    in pixels of the output image. A point outside the crop keeps its position, so its coordinates
    lie outside the output.

    Args:
        count: K, the number of points per sample.
        visibility: each point has a third number, in the sample and in the batch, so the shape is
            (N, K, 3): 0 for unlabeled, 1 for hidden, 2 for visible. A point outside the crop
            becomes (0, 0, 0).
        flip_pairs: pairs of points to swap when the image is flipped along exactly one axis, such
            as ``[(0, 1)]`` for the left and the right eye.
        frames: delivers the points for each of the T frames of an ``Image(frames=T)``, with an axis
            for the frames after N. A sample has an array of shape (T, K, 2), or (T, K, 3) with
            ``visibility``. By default, a clip has one set of points.
    """

    count: int
    visibility: bool = False
    flip_pairs: Pairs = ()
    frames: int | None = None

    def __post_init__(self) -> None:
        _check_frames("Keypoints", self.frames)
        object.__setattr__(self, "flip_pairs", _pairs(self.flip_pairs))

    def _describe(self) -> dict[str, Any]:
        skeleton = {"count": self.count, "pairs": self.flip_pairs}
        return {"keypoints": {"skeleton": skeleton, "visibility": self.visibility, "frames": self.frames}}


@dataclass(frozen=True)
class Boxes(Arguments):
    """The boxes of a sample, with their classes, masks and keypoints.

    The ``boxes`` field becomes these arrays, with ``max_boxes`` boxes per sample:

    ================  ====================  =============  =======================================
    array             shape                 dtype          padding
    ================  ====================  =============  =======================================
    ``boxes``         (N, max_boxes, 4)     f32            0
    ``boxes.count``   (N)                   i64
    ``boxes.class``   (N, max_boxes)        as chosen      -1, or 0 for unsigned types and floats
    ``boxes.masks``   (N, max_boxes, H, W)  u8             0
    ``boxes.points``  (N, max_boxes, K, 3)  f32            0
    ================  ====================  =============  =======================================

    Boxes are clipped to the crop. A box outside the crop is dropped, together with its columns,
    mask and points. The remaining boxes keep their order.

    Args:
        max_boxes: maximum number of boxes per sample.
        columns: names and types of additional per-box values, such as ``{"class": "i64", "crowd":
            "u8"}``.
        in_format, out_format: format of the four numbers in the sample and in the batch:
            ``"xyxy"`` (left, upper, right and lower edge), ``"xywh"`` or ``"cxcywh"``.
        in_relative: reads the coordinates of boxes, polygons and points as fractions of the image's
            width and height.
        out_relative: delivers boxes as fractions of the output's width and height. Points are still
            in pixels.
        min_visible: drops boxes if less than this fraction of their area is inside the crop and not
            covered by pasted objects.
        min_size: drops boxes whose width or height in the output is less than this many pixels.
        masks: adds a mask for each box, with 0 or 1 for each pixel of the output.
        points: adds this number of keypoints for each box. A keypoint consists of x, y and
            visibility: 0 for unlabeled, 1 for hidden, 2 for visible.
        flip_pairs: pairs of points to swap when the image is flipped along exactly one axis.
        truncate: delivers only the first ``max_boxes`` of the boxes that remain after the crop. By
            default, a sample fails if more boxes remain.
        frames: delivers the boxes for each of the T frames of an ``Image(frames=T)``. All
            arrays get an axis for the frames after N, and ``max_boxes`` applies to each frame. A
            sample has a list of T lists of boxes, or an array of shape (T, n, 4) if all frames have
            n boxes. Columns, masks and points have the same form. By default, a clip has one set
            of boxes.
    """

    max_boxes: int
    columns: Mapping[str, Any] | Sequence[tuple[str, Any]] = ()
    in_format: str = "xyxy"
    out_format: str = "xyxy"
    in_relative: bool = False
    out_relative: bool = False
    min_visible: float = 0.0
    min_size: float = 0.0
    masks: bool = False
    points: int | None = None
    flip_pairs: Pairs = ()
    truncate: bool = False
    frames: int | None = None

    def __post_init__(self) -> None:
        _check_frames("Boxes", self.frames)
        columns = self.columns.items() if isinstance(self.columns, Mapping) else self.columns
        object.__setattr__(self, "columns", _columns(columns))
        object.__setattr__(self, "flip_pairs", _pairs(self.flip_pairs))

    def _describe(self) -> dict[str, Any]:
        described = {**vars(self), "columns": [(name, dtype_name(dtype)) for name, dtype in dict(self.columns).items()]}
        described["out_format"] = one_of("out_format", described["out_format"], _FORMATS)
        described["reader"] = {
            "format": one_of("in_format", described.pop("in_format"), _FORMATS), "relative": described.pop("in_relative")
        }  # fmt: skip
        points, pairs = self.points, described.pop("flip_pairs")
        described["points"] = {"count": points or 0, "pairs": pairs} if points is not None or pairs else None
        return {"boxes": described}


@dataclass(frozen=True)
class MultiHot(Arguments):
    """Several labels per sample, as a multi-hot array of shape (N, classes): 1 for each label of
    the sample, and 0 elsewhere.

    The sample's field lists the labels as comma-separated text, a JSON list, or an array of
    integers. Each label is a class name or a class index.

    Args:
        classes: the class names, or the number of classes.
        dtype: element type of the array.
        separator: the character that separates labels in text, such as ``"|"`` or ``";"``; ``" "``
            stands for any whitespace. By default, commas separate labels. Text that contains only
            numbers and no commas is separated at whitespace.
    """

    classes: Sequence[str] | int
    dtype: Dtype = "f32"
    separator: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.classes, int):
            object.__setattr__(self, "classes", name_tuple("classes", self.classes))

    def _describe(self) -> dict[str, Any]:
        return {"multi_hot": {"classes": self.classes, "dtype": dtype_name(self.dtype), "separator": self.separator}}


@dataclass(frozen=True)
class Text(Arguments):
    """One string per sample, such as a caption, delivered as a list of N ``str``, even for device
    batches.

    The sample's field is UTF-8 text, such as ``caption.txt``, or a column of a table. Strings of
    any length are delivered unchanged. To get the bytes of text as an array, use
    :meth:`Ragged.bytes`.

    Args:
        source_field: name of the sample's field, if it differs from the name of the batch field.
    """

    source_field: str | None = None

    def _describe(self) -> dict[str, Any]:
        return {"text": {"source_field": self.source_field}}


@dataclass(frozen=True)
class TokenIds(Arguments):
    """The token ids of a window of :class:`Tokens`, as an array of shape (N, length).

    With ``eos_token_id``, the batch has two more arrays, both i32 of shape (N, length).
    ``<name>.document`` contains the index of each token's document within the window, starting at
    0. ``<name>.position`` contains the position of each token within its document, or within the
    window if the document began before the window. To restrict attention to the tokens of the same
    document, use the mask ``document[:, :, None] == document[:, None, :]``.

    Args:
        length: number of tokens per window.
        dtype: ``"i64"``, ``"i32"`` or ``"u16"``.
        eos_token_id: the token that ends a document. This token is part of the document.
        vocab_size: number of tokens in the vocabulary. A sample fails if it contains a token id
            outside the vocabulary.
    """

    length: int
    dtype: Any = "i64"
    eos_token_id: int | None = None
    vocab_size: int | None = None

    def _describe(self) -> dict[str, Any]:
        described = {"length": self.length, "eos_token_id": self.eos_token_id, "vocab_size": self.vocab_size}
        return {"tokens": {**described, "dtype": dtype_name(self.dtype)}}


@dataclass(frozen=True)
class PackedIds(Arguments):
    """The token ids of a row of :class:`PackedTokens`, as an array of shape (N, length).

    The batch has three more arrays, all i32. ``<name>.document``, of shape (N, length), contains
    the index of each token's document within the row, and -1 for padding. ``<name>.position``, of
    shape (N, length), contains the position of each token within its document, or within the
    padding. ``<name>.ends``, of shape (N, max_documents + 1), contains the end of each document in
    the row, where the padding counts as a document. The remaining elements are ``length``.

    Args:
        length: number of tokens per row.
        max_documents: maximum number of documents per row, as in :class:`PackedTokens`.
        dtype: ``"i64"``, ``"i32"`` or ``"u16"``.
        vocab_size: number of tokens in the vocabulary. A sample fails if it contains a token id
            outside the vocabulary.
    """

    length: int
    max_documents: int = 128
    dtype: Any = "i64"
    vocab_size: int | None = None

    def _describe(self) -> dict[str, Any]:
        limit = min(self.max_documents, self.length)
        described = {"length": self.length, "max_documents": limit, "vocab_size": self.vocab_size}
        return {"packed": {**described, "dtype": dtype_name(self.dtype)}}


_PATCHES = {
    "qwen2_vl": {
        "patch": 14, "merge": 2, "temporal": 2, "min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280,
        "max_patches": None, "interpolation": "bicubic",
    },
    "naflex": {
        "patch": 16, "merge": 1, "temporal": 1, "min_pixels": None, "max_pixels": None, "max_patches": 256,
        "interpolation": "bilinear_exact",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Patches(Arguments):
    """Images of different sizes as packed patches, for vision transformers and vision-language
    models that accept images of any size.

    The image is resized so that each side is a multiple of ``patch`` * ``merge`` pixels, within a
    budget of pixels or patches. It is then normalized and divided into patches. The batch
    concatenates the patches of all images without padding: ``<name>`` has the shape (total, values
    of a patch). ``<name>.grid_thw``, i64 of shape (images, 3), contains the number of patches of
    each image along time, height and width. ``<name>.cu_seqlens``, i32 of shape (images + 1,),
    contains 0, followed by the index after the last patch of each image. ``<name>.count`` and
    ``<name>.images``, i64 of shape (N,), contain the number of patches and of images of each
    sample.

    The patches equal those of the image processors of ``transformers`` that resize with
    torchvision. With the processors that resize with Pillow, some values differ, because Pillow
    rounds differently. The augmentation does not change patches.

    Args:
        layout: ``"qwen2_vl"``, for Qwen2-VL and Qwen2.5-VL, has patches of shape (channel, time,
            row, column), with the patches of a merged block next to each other. ``"naflex"``, for
            SigLIP 2, has patches of shape (row, column, channel) in row-major order.
        source_field: name of the sample's field; by default, the first field that is named after an
            image format.
        patch: side of a patch in pixels: 14 for ``"qwen2_vl"``, 16 for ``"naflex"``.
        merge: side of a block of patches that the model merges, in patches. Only for
            ``"qwen2_vl"``, 2 by default.
        temporal: how many times each frame is repeated in its patches. Only for ``"qwen2_vl"``, 2
            by default.
        min_pixels: minimum number of pixels of a resized image. Only for ``"qwen2_vl"``, 3,136 by
            default.
        max_pixels: maximum number of pixels of a resized image, which determines the memory of a
            batch. Very narrow images may exceed the maximum, because each side has at least one
            merged block. Only for ``"qwen2_vl"``, 1,003,520 by default.
        max_patches: maximum number of patches of an image, which determines the memory of a batch.
            Only for ``"naflex"``, 256 by default.
        interpolation: filter of the resize: ``"bicubic"`` for ``"qwen2_vl"``, ``"bilinear_exact"``
            for ``"naflex"``.
        dtype: ``"f32"``, ``"f16"`` or ``"bf16"``, or ``"u8"`` for pixels that are not normalized.
        normalize: ``"imagenet"`` or ``(mean, std)``; by default, the normalization of the model.
        images: maximum number of images per sample, which determines the memory of a batch. A
            dataset's ``__getitem__`` returns an image or a list of images, of any sizes, in the
            field ``source_field``. If a list may be empty, or contains paths, arrays or tensors,
            the field must be ``image``, or its name must end in the extension of an image format,
            as in ``source_field="photos.jpg"``. By default, each sample has one image.
    """

    layout: str = "qwen2_vl"
    source_field: str | None = None
    patch: int | None = None
    merge: int | None = None
    temporal: int | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None
    max_patches: int | None = None
    interpolation: str | None = None
    dtype: Dtype = "f32"
    normalize: Any = None
    images: int | None = None

    def __post_init__(self) -> None:
        one_of("layout", self.layout, tuple(_PATCHES))
        for name in ("patch", "merge", "temporal", "min_pixels", "max_pixels", "max_patches", "images"):
            value = getattr(self, name)
            if value is not None and operator.index(value) < 1:
                raise ConfigError(f"Patches: {name}={value}: expected at least 1")

    def _describe(self) -> dict[str, Any]:
        defaults = _PATCHES[self.layout]
        values = {name: getattr(self, name) for name in defaults}
        options = {name: defaults[name] if value is None else value for name, value in values.items()}
        mean_std = None if self.normalize is None else normalization(self.normalize)
        normalize = None if mean_std is None else {"mean": mean_std[0], "std": mean_std[1]}
        return {
            "patches": {
                **options, "source_field": self.source_field, "layout": self.layout, "dtype": dtype_name(self.dtype),
                "normalize": normalize, "images": self.images,
            }
        }  # fmt: skip


def reject_moved_fields(fields: Mapping[str, Any], moves_pixels: bool | None) -> None:
    """Raises an error if a field must be transformed with the image, because ``image_transform``
    may move pixels without moving such a field."""
    for name, kind in fields.items():
        if isinstance(kind, (Mask, DenseMap, Keypoints, Boxes, Geometry)):
            raise ConfigError(
                f"fields={{{name!r}: {type(kind).__name__}(...)}} must be transformed with the image, but "
                "image_transform=f "
                + ("moves pixels (image_transform_moves_pixels=True) without moving the field: use augment instead"
                   if moves_pixels else
                   "may move pixels without moving the field: if f does not move pixels, for example because it only "
                   "changes colors, pass image_transform_moves_pixels=False; otherwise use augment instead")
            )  # fmt: skip


def check_images(
    values: Mapping[str, Any],
    defaults: Mapping[str, Any],
    fields: Mapping[str, Any],
    drop_field: Sequence[str],
    views: Any,
) -> None:
    """Raises an error if ``augment`` is set, but the loader does not read images."""
    reads_images = any(isinstance(kind, (Geometry, Image, DenseMap, Mask)) for kind in fields.values())
    if "image" not in drop_field or views is not None or reads_images:
        return
    if values["augment"] is not defaults["augment"]:
        raise ConfigError("augment has no effect, because the loader reads no images; leave augment out")
