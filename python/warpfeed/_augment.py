"""Augmentations, with the same names as in the Rust crate.

Each object records the calls that created it. It prints as that code, compares by value, and can be
pickled. Ranges are checked when a loader or a decoder is opened.
"""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any, Literal, NoReturn, Sequence, Union, overload

from . import _other_names

__all__ = ["Augment", "ColorJitter", "Mix", "RandomErasing"]


Color = tuple[int, int, int]
#: Interpolation for operations after the resize, such as rotations.
OperationInterpolation = Literal["nearest", "bilinear"]
#: Interpolation for the resize.
Interpolation = Literal["bilinear", "bilinear_exact", "bicubic", "lanczos", "nearest"]
PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]
Range = tuple[float, float]
#: The side length of a square, or (height, width).
Size = Union[int, Sequence[int]]


def _size(name: str, size: Any, other: Any, height: Any, width: Any) -> tuple[int, int]:
    """Returns (height, width)."""
    if size is None and other is None and height is not None and width is not None:
        return operator.index(height), operator.index(width)
    values = [repr(size)] if other is None else [repr(size), repr(other)]
    values += [f"{key}={value!r}" for key, value in (("height", height), ("width", width)) if value is not None]
    call = f"{name}({', '.join(values)})"
    expected = (
        "expected a tuple (height, width), as in torchvision, one number for a square, or "
        f"{name}(height=..., width=...)"
    )
    if height is not None or width is not None or size is None:
        raise TypeError(f"{call}: {expected}")
    if other is not None:
        if isinstance(size, int) and size == other:
            return size, size
        raise TypeError(f"{call}: the order of two numbers is ambiguous; {expected}")
    if hasattr(size, "__index__"):
        return operator.index(size), operator.index(size)
    sides = tuple(size) if isinstance(size, (tuple, list)) else ()
    if len(sides) not in (1, 2):
        raise TypeError(f"{call}: {expected}")
    # torchvision also accepts (side,) for a square.
    return operator.index(sides[0]), operator.index(sides[-1])


def _range(name: str, value: Any, single: str = "") -> tuple[float, float] | None:
    """Converts a pair of floats. If `single` is not empty, a single number ``x`` is accepted as
    ``(-x, x)``; `single` describes this in error messages."""
    if value is None:
        return None
    if single and isinstance(value, Real):
        return -float(value), float(value)
    try:
        low, high = (float(number) for number in (() if isinstance(value, str) else value))
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r}: expected two numbers{single and f', or {single}'}") from None
    return low, high


def _pair(value: Range) -> Range:
    low, high = value
    return float(low), float(high)


def _degrees(name: str, value: Any) -> tuple[float, float] | None:
    return _range(name, value, "one number x for (-x, x)")


def _color(name: str, color: Color) -> Color:
    try:
        red, green, blue = (operator.index(level) for level in color)
    except (TypeError, ValueError):
        expected = "expected three whole numbers from 0 to 255, for red, green and blue"
        raise TypeError(f"{name}={color!r}: {expected}") from None
    return red, green, blue


class _Calls(_other_names.EarlierNames):
    """Base of the immutable objects that record the method calls that created them."""

    __slots__ = ("_calls",)
    _calls: tuple[tuple[str, tuple[Any, ...]], ...]

    def __init__(self) -> None:
        object.__setattr__(self, "_calls", ())

    @classmethod
    def _make(cls, calls: tuple[tuple[str, tuple[Any, ...]], ...]) -> Any:
        instance = object.__new__(cls)
        object.__setattr__(instance, "_calls", calls)
        return instance

    def _with(self, name: str, *args: Any) -> Any:
        return self._make((*self._calls, (name, args)))

    def _data(self) -> Any:
        """Returns the options by name, in the form that the extension module expects."""
        return {name: args[0] if len(args) == 1 else args for name, args in self._calls}

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; its methods return a new object")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, _Calls) and self._calls == other._calls

    def __hash__(self) -> int:
        return hash((type(self), self._calls))

    def __reduce__(self) -> tuple[object, ...]:
        return _make, (type(self), self._calls)

    def __repr__(self) -> str:
        calls = (f".{name}({', '.join(map(repr, args))})" for name, args in self._calls)
        return (type(self).__name__ + "".join(calls)).replace(".new(", "(", 1)


def _make(cls: type[_Calls], calls: tuple[tuple[str, tuple[Any, ...]], ...]) -> _Calls:
    instance: _Calls = cls._make(calls)
    return instance


class ColorJitter(_Calls):
    """Randomly changes the colors after the resize, like torchvision's ``ColorJitter``.

    For an amount ``a`` of brightness, contrast or saturation, the factor is drawn uniformly from
    ``max(0, 1 - a)`` to ``1 + a``. The hue is rotated by ``-a`` to ``a`` of the color circle, with
    ``a`` at most 0.5. ``probability`` is the probability that a sample is changed.
    """

    __slots__ = ()

    def __init__(
        self,
        brightness: float = 0.0,
        contrast: float = 0.0,
        saturation: float = 0.0,
        hue: float = 0.0,
        probability: float = 1.0,
    ) -> None:
        values = [("brightness", brightness), ("contrast", contrast), ("saturation", saturation), ("hue", hue)]
        if probability != 1.0:
            values.append(("probability", probability))
        calls = tuple((name, (float(amount),)) for name, amount in values if amount or name == "probability")
        object.__setattr__(self, "_calls", calls)

    def __repr__(self) -> str:
        return f"ColorJitter({', '.join(f'{name}={args[0]!r}' for name, args in self._calls)})"


class RandomErasing(_Calls):
    """Fills a random rectangle with the given probability, after any normalization, like
    torchvision's ``RandomErasing``."""

    __slots__ = ()

    def __init__(self, probability: float) -> None:
        object.__setattr__(self, "_calls", (("new", (float(probability),)),))

    def scale(self, low: float, high: float) -> RandomErasing:
        """Sets the range of the rectangle's area, as fractions of the image's area; 0.02 to 0.33 by
        default."""
        return self._with("scale", float(low), float(high))  # type: ignore[no-any-return]

    def ratio(self, low: float, high: float) -> RandomErasing:
        """Sets the range of the rectangle's height / width; 0.3 to 3.3 by default."""
        return self._with("ratio", float(low), float(high))  # type: ignore[no-any-return]

    def _data(self) -> Any:
        data: dict[str, Any] = {}
        for name, args in self._calls:
            if name in ("noise", "random_color"):
                data["fill"] = {"noise" if name == "noise" else "color": args[0]}
            else:
                data["probability" if name == "new" else name] = args[0] if name == "new" else args
        return data

    def value(self, red: float, green: float, blue: float) -> RandomErasing:
        """Sets the fill value of each channel: on the normalized scale, or from 0 to 255 in ``u8``
        batches; 0 by default."""
        return self._with("value", float(red), float(green), float(blue))  # type: ignore[no-any-return]

    def noise(self, deviation: float = 1.0) -> RandomErasing:
        """Fills the rectangle with normally distributed noise around ``value``, drawn separately
        for each channel of each pixel. For normalized images, ``noise()`` equals timm's mode
        ``pixel``."""
        return self._with("noise", float(deviation))  # type: ignore[no-any-return]

    def random_color(self, deviation: float = 1.0) -> RandomErasing:
        """Fills each rectangle with one random color, drawn from a normal distribution around
        ``value``. For normalized images, ``random_color()`` equals timm's mode ``rand``."""
        return self._with("random_color", float(deviation))  # type: ignore[no-any-return]


class Mix(_Calls):
    """Mixes each sample of a finished batch with its partner, like torchvision's v2 ``MixUp`` and
    ``CutMix``. The partner of sample i is sample i - 1, and the partner of sample 0 is the last
    sample.

    A loader that mixes needs either ``soft_labels=(classes, smoothing)``, which mixes the labels
    like the images, or ``drop_field=["label"]``, to train without labels. Other fields, including
    :class:`MultiHot`, are not mixed. The loader rejects clips, views, :class:`Patches`, and fields
    that are transformed with the image, such as masks. For a custom loss, ``batch.mixing`` contains
    the weight and, for CutMix, the rectangle.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("begin with Mix.mixup(alpha), Mix.cutmix(alpha) or Mix.either(mixup, cutmix)")

    @classmethod
    def mixup(cls, alpha: float) -> Mix:
        """Computes the weighted sum of two images, with a weight drawn from Beta(alpha, alpha)."""
        return cls._make((("mixup", (float(alpha),)),))  # type: ignore[no-any-return]

    @classmethod
    def cutmix(cls, alpha: float) -> Mix:
        """Replaces a rectangle of each image with the same rectangle of its partner. The
        rectangle's fraction of the image's area is drawn from Beta(alpha, alpha). Then the
        rectangle is clipped to the image."""
        return cls._make((("cutmix", (float(alpha),)),))  # type: ignore[no-any-return]

    @classmethod
    def either(cls, mixup_alpha: float, cutmix_alpha: float) -> Mix:
        """Applies either MixUp or CutMix to each batch, with equal probability."""
        return cls._make((("either", (float(mixup_alpha), float(cutmix_alpha))),))  # type: ignore[no-any-return]

    def _data(self) -> Any:
        data = super()._data()
        if "either" in data:
            data["mixup"], data["cutmix"] = data.pop("either")
        return data

    def probability(self, probability: float) -> Mix:
        """Sets the probability that a batch is mixed; 1 by default."""
        return self._with("probability", float(probability))  # type: ignore[no-any-return]


class Augment(_Calls):
    """The steps that turn a decoded image into an image of the batch, including the output size.

    Begin with ``train``, ``eval``, ``center_crop``, ``random_crop``, ``resize``, ``cover``,
    ``pad_to`` or ``pass_through``; for detection with ``letterbox``, ``scale_jitter``,
    ``shortest_size`` or ``iou_crop``; for segmentation with ``random_resize``; or with a
    ``preset``. Then add options::

        Augment.train(224).scale(0.25, 1.0).jitter(ColorJitter(0.4, 0.4, 0.4))

    The random choices for a sample depend only on (seed, epoch, sample). If an epoch repeats a
    sample, the choices differ each time.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError(
            "begin with Augment.train(side), .eval(shorter, side), .center_crop, .random_crop, .resize, .cover, "
            ".pad_to or .pass_through; for detection .letterbox, .scale_jitter, .shortest_size or .iou_crop; for "
            "segmentation "
            ".random_resize; or .preset(name, side)"
        )

    def _data(self) -> Any:
        return [self._step(*call) for call in self._calls]

    @staticmethod
    def _step(name: str, args: tuple[Any, ...]) -> dict[str, Any]:
        options = len(args) == 1 and isinstance(args[0], _Calls)
        return {name: args[0]._data() if options else args}

    @classmethod
    def train(cls, size: Size, *more: NoReturn) -> Augment:
        """Does the same as torchvision's ``RandomResizedCrop(size)`` and
        ``RandomHorizontalFlip()``. ``size`` is a number for a square, or (height, width)."""
        return cls._cropped("train", (), size, more)

    @classmethod
    def eval(cls, shorter: int, size: Size, *more: NoReturn) -> Augment:
        """Does the same as torchvision's ``Resize(shorter)`` and ``CenterCrop(size)``. ``size`` is
        a number for a square, or (height, width)."""
        return cls._cropped("eval", (shorter,), size, more)

    @classmethod
    def center_crop(cls, size: Size, *more: NoReturn) -> Augment:
        """Takes the central pixels without resizing, like torchvision's ``CenterCrop(size)``.
        Unlike in torchvision, a sample fails if its image is smaller. ``size`` is a number for a
        square, or (height, width)."""
        return cls._cropped("center_crop", (), size, more)

    @classmethod
    def _cropped(cls, name: str, before: tuple[int, ...], size: Size, more: tuple[Any, ...]) -> Augment:
        if more:
            arguments = ", ".join(map(repr, (*before, size, *more)))
            raise TypeError(
                f"Augment.{name}({arguments}): expected the size as one number for a square, or as a tuple (height, "
                "width)"
            )
        if not isinstance(size, (tuple, list)):
            return cls._make(((name, (*before, size)),))  # type: ignore[no-any-return]
        height, width = _size(f"Augment.{name}", size, None, None, None)
        square: Augment = cls._make(((name, (*before, max(height, width))),))
        return square if height == width else square.with_output_size((height, width))

    @classmethod
    def random_crop(cls, size: Size, *more: NoReturn) -> Augment:
        """Crops at a random position without resizing, like torchvision's ``RandomCrop(size)``. The
        ``padding``, ``padding_mode``, ``fill`` and ``pad_if_needed`` methods correspond to the
        other arguments of ``RandomCrop``. A sample fails if its image with the border is smaller
        than the crop, unless ``pad_if_needed`` is called. ``size`` is a number for a square, or
        (height, width)."""
        return cls._cropped("random_crop", (), size, more)

    @classmethod
    def random_resize(cls, side: int, low: int, high: int) -> Augment:
        """Resizes the shorter side to a random length from ``low`` to ``high - 1``, then crops
        ``side`` by ``side`` pixels at a random position, like torchvision's reference training for
        segmentation. Areas that the image does not cover are filled."""
        return cls._make((("random_resize", (side, low, high)),))  # type: ignore[no-any-return]

    @classmethod
    def shortest_size(cls, sides: Sequence[int], longest: int) -> Augment:
        """Resizes the shorter side to a random element of ``sides``, or to less if the longer side
        would exceed ``longest``, like torchvision's ``RandomShortestSize(sides, longest)``. The
        output has ``longest`` by ``longest`` pixels, with the image in the upper left corner. The
        remaining area is filled."""
        indices = tuple(operator.index(side) for side in sides)
        return cls._make((("shortest_size", (indices, longest)),))  # type: ignore[no-any-return]

    @classmethod
    def preset(cls, name: str, side: int) -> Augment:
        """Returns a recipe from torchvision's reference training, such as
        ``classification-ta_wide``, ``detection-lsj`` or ``segmentation``. The documentation lists
        all names."""
        return cls._make((("preset", (str(name), side)),))  # type: ignore[no-any-return]

    @overload
    @classmethod
    def resize(cls, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    @classmethod
    def resize(cls, /, *, height: int, width: int) -> Augment: ...

    @classmethod
    def resize(cls, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """Resizes the whole image to (height, width), like torchvision's
        ``Resize((height, width))``. The aspect ratio may change. A single number specifies a
        square. For torchvision's ``Resize(side)``, which resizes the shorter side, use
        ``eval(side, side)`` or ``shortest_size([side], longest)``."""
        return cls._make((("resize", (_size("Augment.resize", size, other, height, width),)),))  # type: ignore[no-any-return]

    @overload
    @classmethod
    def cover(cls, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    @classmethod
    def cover(cls, /, *, height: int, width: int) -> Augment: ...

    @classmethod
    def cover(cls, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """Resizes the image to the smallest size that covers (height, width) without changing its
        aspect ratio, and crops the center. One side of the resized image equals the corresponding
        side of the output, and the other side is rounded half to even. This crop is for
        :class:`SizeBuckets`, which replace the output size."""
        return cls._make((("cover", (_size("Augment.cover", size, other, height, width),)),))  # type: ignore[no-any-return]

    @overload
    @classmethod
    def pass_through(cls, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    @classmethod
    def pass_through(cls, /, *, height: int, width: int) -> Augment: ...

    @classmethod
    def pass_through(cls, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """Keeps the whole image unchanged. A sample fails if its image does not have the size
        (height, width)."""
        return cls._make((("pass_through", (_size("Augment.pass_through", size, other, height, width),)),))  # type: ignore[no-any-return]

    @overload
    @classmethod
    def letterbox(cls, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    @classmethod
    def letterbox(cls, /, *, height: int, width: int) -> Augment: ...

    @classmethod
    def letterbox(cls, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """Resizes the whole image to fit into (height, width), and centers it. The remaining area
        is filled. The image has the same size and position as with Ultralytics' ``LetterBox``."""
        return cls._make((("letterbox", (_size("Augment.letterbox", size, other, height, width),)),))  # type: ignore[no-any-return]

    @overload
    @classmethod
    def pad_to(cls, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    @classmethod
    def pad_to(cls, /, *, height: int, width: int) -> Augment: ...

    @classmethod
    def pad_to(cls, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """Places each image, unchanged, in the upper left corner of an output of size (height,
        width). The remaining area is filled. ``batch.image_sizes`` returns the sizes of the images,
        and ``batch.unpadded_images`` returns the images without padding. A sample fails if its
        image is larger than the output, unless ``shrink_larger`` is called."""
        return cls._make((("pad_to", (_size("Augment.pad_to", size, other, height, width),)),))  # type: ignore[no-any-return]

    @classmethod
    def scale_jitter(cls, side: int, low: float, high: float) -> Augment:
        """Equals torchvision's ``ScaleJitter``, followed by ``FixedSizeCrop`` from its reference
        training.

        The whole image is resized to fit into ``side`` by ``side`` pixels, times a factor that is
        drawn uniformly from ``low`` to ``high``. A larger result is cropped at a random position. A
        smaller result is placed in the upper left corner."""
        return cls._make((("scale_jitter", (side, float(low), float(high))),))  # type: ignore[no-any-return]

    @overload
    @classmethod
    def iou_crop(cls, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    @classmethod
    def iou_crop(cls, /, *, height: int, width: int) -> Augment: ...

    @classmethod
    def iou_crop(cls, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """Equals torchvision's ``RandomIoUCrop()`` and ``Resize((height, width))``: takes a random
        crop that overlaps enough with the sample's boxes. The loader needs a :class:`Boxes`
        field."""
        return cls._make((("iou_crop", (_size("Augment.iou_crop", size, other, height, width),)),))  # type: ignore[no-any-return]

    def zoom_out(self, probability: float = 0.5, low: float = 1.0, high: float = 4.0) -> Augment:
        """Before the crop, places the image on a canvas that is ``low`` to ``high`` times as high
        and as wide, like torchvision's ``RandomZoomOut``. The remaining area is filled. Only for
        ``iou_crop``."""
        return self._with("zoom_out", float(probability), float(low), float(high))  # type: ignore[no-any-return]

    def photometric_distort(self, probability: float = 0.5) -> Augment:
        """Changes the brightness, contrast, saturation, hue and channel order, each with the given
        probability, like torchvision's ``RandomPhotometricDistort``."""
        return self._with("photometric_distort", float(probability))  # type: ignore[no-any-return]

    def fill(self, red: int, green: int, blue: int) -> Augment:
        """Sets the color of the area that the image does not cover, as (red, green, blue) from 0 to
        255; black by default. Only for ``letterbox``, ``scale_jitter``, ``random_crop``,
        ``random_resize``, ``shortest_size`` and ``pad_to``, and after ``zoom_out`` and
        ``mosaic``."""
        return self._with("fill", *_color("fill", (red, green, blue)))  # type: ignore[no-any-return]

    def padding(self, pixels: int) -> Augment:
        """Sets the width of the border around the image in pixels; 0 by default. Only for
        ``random_crop``."""
        return self._with("padding", pixels)  # type: ignore[no-any-return]

    def padding_mode(self, mode: PaddingMode) -> Augment:
        """Sets the content of the border, like torchvision's ``padding_mode``. The default,
        ``"constant"``, is the fill color. Only for ``random_crop``. Loaders with masks, boxes or
        other fields that are transformed with the image support only ``"constant"``."""
        return self._with("padding_mode", str(mode))  # type: ignore[no-any-return]

    def pad_if_needed(self) -> Augment:
        """Widens the border if an image with its border is smaller than the crop. Only for
        ``random_crop``."""
        return self._with("pad_if_needed")  # type: ignore[no-any-return]

    def shrink_larger(self) -> Augment:
        """Shrinks images that are larger than the output until they fit. Only for ``pad_to``."""
        return self._with("shrink_larger")  # type: ignore[no-any-return]

    def interpolation(self, mode: Interpolation) -> Augment:
        """Sets the interpolation of the resize; ``"bilinear"`` by default. All modes except
        ``"nearest"`` are antialiased. ``"bilinear_exact"`` is bit-identical to torchvision's v2
        transforms on uint8 tensors. The pixel values of ``"bilinear"`` differ from these by at most
        2, and rarely by more than 1. With a mode other than the default, all images are decoded and
        resized on the CPU."""
        return self._with("interpolation", str(mode))  # type: ignore[no-any-return]

    def antialias(self, on: bool) -> Augment:
        """Sets whether the resize is antialiased when it shrinks an image; True by default.
        ``antialias(False)`` equals torchvision's ``antialias=False``. In this case, all images are
        decoded and resized on the CPU."""
        return self._with("antialias", bool(on))  # type: ignore[no-any-return]

    def from_epoch(self, epoch: int, augment: Augment) -> Augment:
        """Switches to ``augment`` at the start of ``epoch``. Repeated calls must have increasing
        epochs. The output size may differ between epochs."""
        return self._with("from_epoch", operator.index(epoch), augment)  # type: ignore[no-any-return]

    @overload
    def with_output_size(self, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    def with_output_size(self, /, *, height: int, width: int) -> Augment: ...

    def with_output_size(
        self, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None
    ) -> Augment:
        """Sets the output size: a number for a square, or (height, width)."""
        return self._with(  # type: ignore[no-any-return]
            "with_output_size", _size("with_output_size", size, other, height, width)
        )

    def scale(self, low: float, high: float) -> Augment:
        """Sets the range of the crop's area, as fractions of the image's area; 0.08 to 1 by
        default. Only for ``train``."""
        return self._with("scale", float(low), float(high))  # type: ignore[no-any-return]

    def ratio(self, low: float, high: float) -> Augment:
        """Sets the range of the crop's aspect ratio, width / height; 3/4 to 4/3 by default. Only
        for ``train``."""
        return self._with("ratio", float(low), float(high))  # type: ignore[no-any-return]

    def flip(self, probability: float) -> Augment:
        """Sets the probability of a horizontal flip. The default is 0.5 for ``train`` and for
        presets for training, and 0 otherwise."""
        return self._with("flip", float(probability))  # type: ignore[no-any-return]

    def vertical_flip(self, probability: float) -> Augment:
        """Sets the probability of a vertical flip; 0 by default."""
        return self._with("vertical_flip", float(probability))  # type: ignore[no-any-return]

    def jitter(self, jitter: ColorJitter) -> Augment:
        """Randomly changes the colors after the resize. Each call adds a jitter."""
        return self._with("jitter", jitter)  # type: ignore[no-any-return]

    def rand_augment(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        bins: int = 31,
        interpolation: OperationInterpolation = "nearest",
        fill: Color | None = None,
    ) -> Augment:
        """Applies ``num_ops`` random effects of the same magnitude to each sample, like
        torchvision's ``RandAugment``."""
        return self._policy("rand_augment", (num_ops, magnitude, bins), interpolation, fill)

    def trivial_augment_wide(
        self, bins: int = 31, interpolation: OperationInterpolation = "nearest", fill: Color | None = None
    ) -> Augment:
        """Applies one random effect with a random magnitude to each sample, like torchvision's
        ``TrivialAugmentWide``."""
        return self._policy("trivial_augment_wide", (bins,), interpolation, fill)

    def auto_augment(
        self,
        policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet",
        interpolation: OperationInterpolation = "nearest",
        fill: Color | None = None,
    ) -> Augment:
        """Applies up to two effects from a learned policy to each sample, like torchvision's
        ``AutoAugment``."""
        return self._policy("auto_augment", (policy,), interpolation, fill)

    def aug_mix(
        self,
        severity: int = 3,
        chains: int = 3,
        depth: int | None = None,
        interpolation: OperationInterpolation = "bilinear",
        fill: Color | None = None,
    ) -> Augment:
        """Blends the image with the results of ``chains`` chains of ``depth`` effects each, like
        torchvision's ``AugMix``. If ``depth`` is None, a chain has 1 to 3 effects. Runs on the CPU,
        even for batches on a device."""
        return self._policy("aug_mix", (severity, chains, depth), interpolation, fill)

    def timm(
        self, policy: str, interpolation: OperationInterpolation = "bilinear", fill: Color = (124, 116, 104)
    ) -> Augment:
        """Applies a policy that is written in timm's syntax, such as ``rand-m9-mstd0.5-inc1``,
        ``original-mstd0.5``, ``3a`` or ``augmix-m5-w4-d2``. The documentation lists the differences
        from timm."""
        return self._policy("timm", (str(policy),), interpolation, _color("timm: fill", fill))

    def _policy(self, name: str, args: tuple[Any, ...], interpolation: str, fill: Color | None) -> Augment:
        color = None if fill is None else _color(f"{name}: fill", fill)
        return self._with(name, *args, interpolation, color)  # type: ignore[no-any-return]

    def three_augment(self) -> Augment:
        """Applies 3-Augment from "DeiT III": grayscale, solarize or blur, chosen at random,
        followed by a color jitter of 0.3."""
        return self._with("three_augment")  # type: ignore[no-any-return]

    def simclr(self) -> Augment:
        """Applies the color augmentation of SimCLR: jitter, grayscale and blur. The size of the
        blur depends on the output size, so call :meth:`with_output_size` before this method."""
        return self._with("simclr")  # type: ignore[no-any-return]

    def dino(self, blur: float, solarize: float) -> Augment:
        """Applies the color augmentation of DINO. The arguments are the probabilities of blur and
        of solarize: use (1, 0) and (0.1, 0.2) for the global views, and (0.5, 0) for the local
        views."""
        return self._with("dino", float(blur), float(solarize))  # type: ignore[no-any-return]

    @classmethod
    def simclr_views(cls, size: Size) -> list[Augment]:
        """Returns the two views of SimCLR for ``Loader(views=...)``: random crops with
        :meth:`simclr`."""
        return [cls.train(size).simclr() for _ in range(2)]

    @classmethod
    def dino_views(cls, global_size: Size, local_size: Size, count: int) -> list[Augment]:
        """Returns the views of DINO for ``Loader(views=...)``: two global views that cover 0.4 to 1
        of the image's area, and ``count`` local views that cover 0.05 to 0.4 of this area."""
        large = cls.train(global_size).scale(0.4, 1.0)
        small = cls.train(local_size).scale(0.05, 0.4).dino(0.5, 0.0)
        return [large.dino(1.0, 0.0), large.dino(0.1, 0.2), *[small] * count]

    def affine(
        self,
        rotate: Range | float | None = None,
        translate: Range | None = None,
        scale: Range | None = None,
        shear_x: Range | float | None = None,
        shear_y: Range | float | None = None,
        interpolation: OperationInterpolation = "nearest",
        fill: Color = (0, 0, 0),
    ) -> Augment:
        """Applies a random affine transform, like torchvision's ``RandomAffine``. ``rotate`` and
        the shears are ranges in degrees; a single number ``x`` stands for ``(-x, x)``.
        ``translate`` is the maximum shift, as fractions of the width and the height. ``scale`` is
        the range of the factor."""
        ranges = (
            _degrees("affine: rotate", rotate), _range("affine: translate", translate), _range("affine: scale", scale),
            _degrees("affine: shear_x", shear_x), _degrees("affine: shear_y", shear_y),
        )  # fmt: skip
        return self._with("affine", *ranges, interpolation, _color("affine: fill", fill))  # type: ignore[no-any-return]

    def rotate(self, degrees: float) -> Augment:
        """Rotates by a random angle from ``-degrees`` to ``degrees``, like torchvision's
        ``RandomRotation(degrees)``, with nearest-neighbor interpolation and black corners.
        ``affine`` has more options."""
        if not isinstance(degrees, Real):
            raise TypeError(
                f"rotate: degrees={degrees!r}: expected one number; for a range, use affine(rotate=(low, high))"
            )
        rotated: Augment = self._with("rotate", float(degrees))
        return rotated

    def perspective(self, scale: float = 0.5, probability: float = 0.5) -> Augment:
        """Applies a random perspective transform with the given probability and bilinear
        interpolation, like torchvision's ``RandomPerspective``. Each corner moves inward by up to
        ``scale`` times half the width and height."""
        return self._with("perspective", float(scale), float(probability))  # type: ignore[no-any-return]

    # Generated: one item per random effect in src/transform/ops.
    def invert(self, probability: float = 0.5) -> Augment:
        """Inverts all levels with the given probability, like torchvision's ``RandomInvert``."""
        return self._with("invert", float(probability))  # type: ignore[no-any-return]

    def posterize(self, bits: int, probability: float = 0.5) -> Augment:
        """Keeps the upper ``bits`` of each level with the given probability, like torchvision's
        ``RandomPosterize``."""
        return self._with("posterize", bits, float(probability))  # type: ignore[no-any-return]

    def solarize(self, threshold: float, probability: float = 0.5) -> Augment:
        """Inverts levels of ``threshold`` or more with the given probability, like torchvision's
        ``RandomSolarize``."""
        return self._with("solarize", float(threshold), float(probability))  # type: ignore[no-any-return]

    def equalize(self, probability: float = 0.5) -> Augment:
        """Spreads the levels evenly with the given probability, like torchvision's ``RandomEqualize``."""
        return self._with("equalize", float(probability))  # type: ignore[no-any-return]

    def autocontrast(self, probability: float = 0.5) -> Augment:
        """Stretches the levels to 0 to 255 with the given probability, like torchvision's
        ``RandomAutocontrast``."""
        return self._with("autocontrast", float(probability))  # type: ignore[no-any-return]

    def grayscale(self, probability: float = 0.1) -> Augment:
        """Converts images to grayscale with the given probability, like torchvision's
        ``RandomGrayscale``."""
        return self._with("grayscale", float(probability))  # type: ignore[no-any-return]

    def permute_channels(self, probability: float = 1.0) -> Augment:
        """Permutes the color channels with the given probability. With probability 1, this equals
        torchvision's ``RandomChannelPermutation``."""
        return self._with("permute_channels", float(probability))  # type: ignore[no-any-return]

    def sharpness(self, factor: float, probability: float = 0.5) -> Augment:
        """Sharpens with the given probability, like torchvision's ``RandomAdjustSharpness``. The factor
        0 smooths, 1 changes nothing, 2 sharpens."""
        return self._with("sharpness", float(factor), float(probability))  # type: ignore[no-any-return]

    def blur(self, kernel: int, sigma: Range = (0.1, 2.0), probability: float = 1.0) -> Augment:
        """Blurs with the given probability, like torchvision's ``RandomApply`` with
        ``GaussianBlur(kernel, (low, high))``. ``kernel`` is the width of the kernel in pixels, an odd
        number up to 63. The standard deviation ``sigma`` is drawn uniformly from low to high, in
        pixels."""
        return self._with("blur", kernel, _pair(sigma), float(probability))  # type: ignore[no-any-return]

    # End of the generated items.

    def erase(self, erasing: RandomErasing) -> Augment:
        """Fills a random rectangle of the image, after any normalization. A second call replaces
        the first."""
        return self._with("erase", erasing)  # type: ignore[no-any-return]

    def mix(self, mix: Mix) -> Augment:
        """Mixes each sample of a finished batch with the previous sample; see :class:`Mix`."""
        return self._with("mix", mix)  # type: ignore[no-any-return]

    def mosaic(
        self, probability: float = 1.0, scale: tuple[float, float] = (0.5, 1.5), translate: float = 0.1
    ) -> Augment:
        """Combines a sample with three others into a mosaic, including boxes and masks, like
        Ultralytics. The four images meet at a random point of a canvas that has twice the width and
        height of the output. The canvas is then scaled and shifted. The three other samples are
        drawn at random from the epoch.

        Use ``from_epoch`` to train without mosaics in the last epochs. If samples have labels, pass
        ``drop_field=["label"]``, because a label is the class of a single image.

        Args:
            probability: probability that a sample becomes a mosaic. Otherwise, the sample is
                cropped by the first step of the augmentation, such as ``letterbox``.
            scale: range of the scale factor, which is drawn uniformly.
            translate: maximum shift along each axis, as a fraction of the output's width or height.
        """
        return self._with("mosaic", float(probability), _pair(scale), float(translate))  # type: ignore[no-any-return]

    def copy_paste(self, probability: float = 1.0, margin: int = 2) -> Augment:
        """Pastes objects from a second sample into the image, like torchvision's
        ``SimpleCopyPaste``. The masks of the objects select the pixels to paste. The second sample
        is drawn at random from the epoch. Pasted pixels are removed from the masks of the objects
        that they cover. A covered object is dropped if no pixels remain, or if it no longer meets
        ``min_visible`` or ``min_size`` of :class:`Boxes`.

        The loader needs exactly one :class:`Boxes` field with ``masks=True``. If samples have
        labels, pass ``drop_field=["label"]``.

        Args:
            probability: probability that objects are pasted into a sample.
            margin: number of pixels around each mask that are pasted together with the object, from
                0 to 64.
        """
        return self._with("copy_paste", float(probability), int(margin))  # type: ignore[no-any-return]
