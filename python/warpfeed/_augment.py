"""Augmentations, with the same names as in the Rust crate.

Each object records the calls that created it. Therefore it prints as it was written, compares by
value, and can be pickled. The values are checked when a loader is opened.
"""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any, Literal, Sequence, Union, overload

from . import _other_names

__all__ = ["Augment", "ColorJitter", "Mix", "RandomErasing"]


Color = tuple[int, int, int]
#: Interpolation of operations after the resize, such as rotations.
OperationInterpolation = Literal["nearest", "bilinear"]
#: Interpolation of the resize.
Interpolation = Literal["bilinear", "bilinear_exact", "bicubic", "lanczos", "nearest"]
Border = Literal["constant", "edge", "reflect", "symmetric"]
Range = tuple[float, float]
#: The side of a square, or (height, width).
Size = Union[int, Sequence[int]]


def _size(name: str, size: Any, other: Any, height: Any, width: Any) -> tuple[int, int]:
    """Returns the height and width that the arguments of a method specify."""
    if size is None and other is None and height is not None and width is not None:
        return operator.index(height), operator.index(width)
    given = [repr(size)] if other is None else [repr(size), repr(other)]
    given += [f"{key}={value!r}" for key, value in (("height", height), ("width", width)) if value is not None]
    call = f"{name}({', '.join(given)})"
    expected = f"expected a tuple (height, width), as in torchvision, one number for a square, or {name}(height=..., width=...)"
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
    # In torchvision, (side,) is a square.
    return operator.index(sides[0]), operator.index(sides[-1])


def _range(name: str, value: Any, single: str = "") -> tuple[float, float] | None:
    """Reads the argument `name` as two numbers. One number ``x`` is ``(-x, x)`` if `single` allows it."""
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
    """Returns a range of angles, given as one number or two."""
    return _range(name, value, "one number x for (-x, x)")


def _color(color: Color) -> Color:
    red, green, blue = color
    return operator.index(red), operator.index(green), operator.index(blue)


class _Calls(_other_names.EarlierNames):
    """An immutable list of calls."""

    __slots__ = ("_calls",)
    _calls: tuple[tuple[str, tuple[Any, ...]], ...]

    def __init__(self) -> None:
        object.__setattr__(self, "_calls", ())

    @classmethod
    def _make(cls, calls: tuple[tuple[str, tuple[Any, ...]], ...]) -> Any:
        made = object.__new__(cls)
        object.__setattr__(made, "_calls", calls)
        return made

    def _with(self, name: str, *args: Any) -> Any:
        return self._make((*self._calls, (name, args)))

    def _data(self) -> Any:
        """Returns the options by name, in the form that the native module expects."""
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
    made: _Calls = cls._make(calls)
    return made


class ColorJitter(_Calls):
    """Random changes of colors after the resize, like torchvision's ``ColorJitter``.

    For an amount ``a``, the factor is drawn from ``1 - a`` to ``1 + a``. The hue is shifted by
    ``-a`` to ``a`` of the color circle, and ``a`` is at most 0.5. ``probability`` is the fraction
    of samples that are changed.
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
        given = [("brightness", brightness), ("contrast", contrast), ("saturation", saturation), ("hue", hue)]
        if probability != 1.0:
            given.append(("probability", probability))
        calls = tuple((name, (float(amount),)) for name, amount in given if amount or name == "probability")
        object.__setattr__(self, "_calls", calls)

    def __repr__(self) -> str:
        return f"ColorJitter({', '.join(f'{name}={args[0]!r}' for name, args in self._calls)})"


class RandomErasing(_Calls):
    """Fills a random rectangle after normalization, like torchvision's ``RandomErasing``."""

    __slots__ = ()

    def __init__(self, probability: float) -> None:
        object.__setattr__(self, "_calls", (("new", (float(probability),)),))

    def scale(self, low: float, high: float) -> RandomErasing:
        """Sets the fraction of the area that the rectangle covers; 0.02 to 0.33 by default."""
        return self._with("scale", float(low), float(high))  # type: ignore[no-any-return]

    def ratio(self, low: float, high: float) -> RandomErasing:
        """Sets the rectangle's aspect ratio; 0.3 to 3.3 by default."""
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
        """Sets the fill value after normalization; 0 by default."""
        return self._with("value", float(red), float(green), float(blue))  # type: ignore[no-any-return]

    def noise(self, deviation: float = 1.0) -> RandomErasing:
        """Fills with noise around ``value``, drawn for each channel of each pixel. ``noise()``
        equals timm's mode ``pixel``."""
        return self._with("noise", float(deviation))  # type: ignore[no-any-return]

    def random_color(self, deviation: float = 1.0) -> RandomErasing:
        """Fills each rectangle with a random color around ``value``. ``random_color()`` equals
        timm's mode ``rand``."""
        return self._with("random_color", float(deviation))  # type: ignore[no-any-return]


class Mix(_Calls):
    """Mixes neighboring samples of a finished batch, like torchvision's v2 ``MixUp`` and
    ``CutMix``.

    A loader that mixes needs ``soft_labels=(classes, smoothing)``, which are mixed like the images,
    or ``drop_field=["label"]`` to train without labels. No other fields are mixed, including
    :class:`MultiHot`. For a custom loss, ``batch.mixing`` contains the weight, and the partner of
    sample i is sample i - 1.
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
        """Copies a rectangle of one image into another."""
        return cls._make((("cutmix", (float(alpha),)),))  # type: ignore[no-any-return]

    @classmethod
    def either(cls, mixup_alpha: float, cutmix_alpha: float) -> Mix:
        """Randomly chooses between MixUp and CutMix with equal probability for each batch."""
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
    """The processing steps between decoding an image and writing it to the batch, and the size of
    the output.

    Begin with ``train``, ``eval``, ``center_crop``, ``random_crop``, ``resize`` or ``pass_through``;
    for detection with ``letterbox``, ``scale_jitter``, ``shortest_size`` or ``iou_crop``; for
    segmentation with ``random_resize``; or with a ``preset``. Then add options::

        Augment.train(224).scale(0.25, 1.0).jitter(ColorJitter(0.4, 0.4, 0.4))

    The random numbers of a sample depend only on (seed, epoch, sample).
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError(
            "begin with Augment.train(side), .eval(shorter, side), .center_crop, .random_crop, .resize, .own_size or "
            ".pass_through; for detection .letterbox, .scale_jitter, .shortest_size or .iou_crop; for segmentation "
            ".random_resize; or .preset(name, side)"
        )

    def _data(self) -> Any:
        return [self._step(*call) for call in self._calls]

    @staticmethod
    def _step(name: str, args: tuple[Any, ...]) -> dict[str, Any]:
        """Returns a call in the form that the native module expects: a list of arguments, or the
        options if the argument is an object."""
        options = len(args) == 1 and isinstance(args[0], _Calls)
        return {name: args[0]._data() if options else args}

    @classmethod
    def train(cls, size: Size) -> Augment:
        """torchvision's ``RandomResizedCrop(size)`` and ``RandomHorizontalFlip()``. ``size`` is one number
        for a square, or (height, width)."""
        return cls._cropped("train", (), size)

    @classmethod
    def eval(cls, shorter: int, size: Size) -> Augment:
        """torchvision's ``Resize(shorter)`` and ``CenterCrop(size)``. ``size`` is one number for a square,
        or (height, width)."""
        return cls._cropped("eval", (shorter,), size)

    @classmethod
    def center_crop(cls, size: Size) -> Augment:
        """torchvision's ``CenterCrop(size)``: the central pixels, without a resize. ``size`` is one number
        for a square, or (height, width)."""
        return cls._cropped("center_crop", (), size)

    @classmethod
    def _cropped(cls, name: str, before: tuple[int, ...], size: Size) -> Augment:
        if not isinstance(size, (tuple, list)):
            return cls._make(((name, (*before, size)),))  # type: ignore[no-any-return]
        height, width = _size(f"Augment.{name}", size, None, None, None)
        begun: Augment = cls._make(((name, (*before, max(height, width))),))
        return begun if height == width else begun.output((height, width))

    @classmethod
    def random_crop(cls, size: Size) -> Augment:
        """torchvision's ``RandomCrop(size)``. ``padding``, ``border`` and ``pad_if_needed`` correspond to its
        other arguments. ``size`` is one number for a square, or (height, width)."""
        return cls._cropped("random_crop", (), size)

    @classmethod
    def random_resize(cls, side: int, low: int, high: int) -> Augment:
        """torchvision's reference training for segmentation: resizes the shorter side to ``low`` to
        ``high - 1``, then crops ``side`` by ``side`` pixels at random. Areas that the image does
        not cover are filled."""
        return cls._make((("random_resize", (side, low, high)),))  # type: ignore[no-any-return]

    @classmethod
    def shortest_size(cls, sides: Sequence[int], longest: int) -> Augment:
        """torchvision's ``RandomShortestSize(sides, longest)``. The image is in the upper left
        corner of an output of ``longest`` by ``longest`` pixels, and the remaining area is
        filled."""
        indices = tuple(operator.index(side) for side in sides)
        return cls._make((("shortest_size", (indices, longest)),))  # type: ignore[no-any-return]

    @classmethod
    def preset(cls, name: str, side: int) -> Augment:
        """A recipe of torchvision's reference training, such as ``classification-ta_wide``,
        ``detection-lsj`` or ``segmentation``. The documentation lists the names."""
        return cls._make((("preset", (str(name), side)),))  # type: ignore[no-any-return]

    @overload
    @classmethod
    def resize(cls, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    @classmethod
    def resize(cls, /, *, height: int, width: int) -> Augment: ...

    @classmethod
    def resize(cls, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """torchvision's ``Resize((height, width))`` of the whole image. The aspect ratio may
        change. A single number specifies a square. For ``Resize(side)``, which resizes the shorter
        side, use ``eval(side, side)`` or ``shortest_size([side], longest)``."""
        return cls._make((("resize", (_size("Augment.resize", size, other, height, width),)),))  # type: ignore[no-any-return]

    @overload
    @classmethod
    def pass_through(cls, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    @classmethod
    def pass_through(cls, /, *, height: int, width: int) -> Augment: ...

    @classmethod
    def pass_through(cls, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """The whole image, unchanged. An image of any size other than (height, width) fails."""
        return cls._make((("pass_through", (_size("Augment.pass_through", size, other, height, width),)),))  # type: ignore[no-any-return]

    @overload
    @classmethod
    def letterbox(cls, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    @classmethod
    def letterbox(cls, /, *, height: int, width: int) -> Augment: ...

    @classmethod
    def letterbox(cls, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """The whole image, resized to fit into (height, width) and centered. The remaining area is
        filled. Size and position equal those of Ultralytics' ``LetterBox``."""
        return cls._make((("letterbox", (_size("Augment.letterbox", size, other, height, width),)),))  # type: ignore[no-any-return]

    @overload
    @classmethod
    def own_size(cls, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    @classmethod
    def own_size(cls, /, *, height: int, width: int) -> Augment: ...

    @classmethod
    def own_size(cls, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """Each image unchanged, in the upper left corner of an output of (height, width). The
        remaining area is filled. ``batch.sizes`` returns the sizes of the images, and
        ``batch.unpadded`` returns the images without padding. A larger image fails, unless
        ``shrink_larger`` is called."""
        return cls._make((("own_size", (_size("Augment.own_size", size, other, height, width),)),))  # type: ignore[no-any-return]

    @classmethod
    def scale_jitter(cls, side: int, low: float, high: float) -> Augment:
        """torchvision's ``ScaleJitter``, then the ``FixedSizeCrop`` of its reference training.

        The whole image is resized to fit into ``side`` by ``side``, times a factor that is drawn
        uniformly from ``low`` to ``high``. A larger result is cropped at random, and a smaller one
        is placed in the upper left corner."""
        return cls._make((("scale_jitter", (side, float(low), float(high))),))  # type: ignore[no-any-return]

    @overload
    @classmethod
    def iou_crop(cls, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    @classmethod
    def iou_crop(cls, /, *, height: int, width: int) -> Augment: ...

    @classmethod
    def iou_crop(cls, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """torchvision's ``RandomIoUCrop()`` and ``Resize((height, width))``: a random crop that
        contains enough of the sample's boxes. It needs a field of :class:`Boxes`."""
        return cls._make((("iou_crop", (_size("Augment.iou_crop", size, other, height, width),)),))  # type: ignore[no-any-return]

    def zoom_out(self, probability: float = 0.5, low: float = 1.0, high: float = 4.0) -> Augment:
        """torchvision's ``RandomZoomOut`` before its ``RandomIoUCrop``: places the image on a canvas
        with sides that are ``low`` to ``high`` times as long. The remaining area is filled. Only
        for ``iou_crop``."""
        return self._with("zoom_out", float(probability), float(low), float(high))  # type: ignore[no-any-return]

    def photometric_distort(self, probability: float = 0.5) -> Augment:
        """torchvision's ``RandomPhotometricDistort``: brightness, contrast, saturation, hue and the order
        of the channels, each with this probability."""
        return self._with("photometric_distort", float(probability))  # type: ignore[no-any-return]

    def fill(self, red: int, green: int, blue: int) -> Augment:
        """Sets the color of the padding around the image; black by default. Only for
        ``letterbox``, ``scale_jitter``, ``random_crop``, ``random_resize``, ``shortest_size`` and
        ``own_size``, and after ``zoom_out`` and ``mosaic``."""
        return self._with("fill", *_color((red, green, blue)))  # type: ignore[no-any-return]

    def padding(self, pixels: int) -> Augment:
        """Sets the width of the border around the image; 0 by default. Only for ``random_crop``."""
        return self._with("padding", pixels)  # type: ignore[no-any-return]

    def border(self, mode: Border) -> Augment:
        """Sets the content of the border, as torchvision's ``padding_mode``; the default is
        ``"constant"``, the fill color. Only for ``random_crop``. Masks, boxes and other fields that
        are transformed with the image need ``"constant"``."""
        return self._with("border", str(mode))  # type: ignore[no-any-return]

    def pad_if_needed(self) -> Augment:
        """Widens the border of images that are too small. Only for ``random_crop``."""
        return self._with("pad_if_needed")  # type: ignore[no-any-return]

    def shrink_larger(self) -> Augment:
        """Resizes an image that is larger than the output so that it fits. Only for ``own_size``."""
        return self._with("shrink_larger")  # type: ignore[no-any-return]

    def interpolation(self, mode: Interpolation) -> Augment:
        """Sets the interpolation of the resize; ``"bilinear"`` by default. All modes except ``"nearest"`` are
        antialiased. ``"bilinear_exact"`` is bit-identical to torchvision, from which the pixel
        values of ``"bilinear"`` differ by at most one. With a mode other than the default, workers
        decode and resize all images."""
        return self._with("interpolation", str(mode))  # type: ignore[no-any-return]

    def antialias(self, on: bool) -> Augment:
        """Sets whether the resize filters out high frequencies when images shrink; True by default.
        ``antialias(False)`` equals torchvision's ``antialias=False``. Workers then decode and
        resize all images."""
        return self._with("antialias", bool(on))  # type: ignore[no-any-return]

    def from_epoch(self, epoch: int, augment: Augment) -> Augment:
        """Uses ``augment`` from ``epoch`` on. Each further call must pass a later epoch. The size
        of the output may change between epochs."""
        return self._with("from_epoch", operator.index(epoch), augment)  # type: ignore[no-any-return]

    @overload
    def output(self, size: Size, other: int | None = None, /) -> Augment: ...

    @overload
    def output(self, /, *, height: int, width: int) -> Augment: ...

    def output(self, size: Any = None, other: Any = None, /, *, height: Any = None, width: Any = None) -> Augment:
        """Sets the output size: one number for a square, or (height, width)."""
        return self._with("output", _size("output", size, other, height, width))  # type: ignore[no-any-return]

    def scale(self, low: float, high: float) -> Augment:
        """Sets the fraction of the area that the crop covers; 0.08 to 1 by default. Only for
        ``train``."""
        return self._with("scale", float(low), float(high))  # type: ignore[no-any-return]

    def ratio(self, low: float, high: float) -> Augment:
        """Sets the crop's width / height; 3/4 to 4/3 by default. Only for ``train``."""
        return self._with("ratio", float(low), float(high))  # type: ignore[no-any-return]

    def flip(self, probability: float) -> Augment:
        """Sets the probability of mirroring left and right; 0.5 for ``train``, otherwise 0."""
        return self._with("flip", float(probability))  # type: ignore[no-any-return]

    def vertical_flip(self, probability: float) -> Augment:
        """Sets the probability of mirroring top and bottom; 0 by default."""
        return self._with("vertical_flip", float(probability))  # type: ignore[no-any-return]

    def jitter(self, jitter: ColorJitter) -> Augment:
        """Jitters the colors after the resize. A second call adds a second jitter."""
        return self._with("jitter", jitter)  # type: ignore[no-any-return]

    def rand_augment(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        bins: int = 31,
        interpolation: OperationInterpolation = "nearest",
        fill: Color | None = None,
    ) -> Augment:
        """torchvision's ``RandAugment``: ``num_ops`` effects of the same magnitude for each
        sample."""
        return self._policy("rand_augment", (num_ops, magnitude, bins), interpolation, fill)

    def trivial_augment_wide(
        self, bins: int = 31, interpolation: OperationInterpolation = "nearest", fill: Color | None = None
    ) -> Augment:
        """torchvision's ``TrivialAugmentWide``: one effect with a random magnitude for each
        sample."""
        return self._policy("trivial_augment_wide", (bins,), interpolation, fill)

    def auto_augment(
        self,
        policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet",
        interpolation: OperationInterpolation = "nearest",
        fill: Color | None = None,
    ) -> Augment:
        """torchvision's ``AutoAugment``: two effects from a learned policy for each sample."""
        return self._policy("auto_augment", (policy,), interpolation, fill)

    def aug_mix(
        self,
        severity: int = 3,
        chains: int = 3,
        depth: int | None = None,
        interpolation: OperationInterpolation = "bilinear",
        fill: Color | None = None,
    ) -> Augment:
        """torchvision's ``AugMix``: mixes the image with ``chains`` chains of ``depth`` effects, or
        of 1 to 3 effects by default. It runs on the workers even for batches on a device."""
        return self._policy("aug_mix", (severity, chains, depth), interpolation, fill)

    def timm(
        self, policy: str, interpolation: OperationInterpolation = "bilinear", fill: Color = (124, 116, 104)
    ) -> Augment:
        """A policy in timm's grammar, such as ``rand-m9-mstd0.5-inc1``, ``original-mstd0.5``,
        ``3a`` or ``augmix-m5-w4-d2``. The documentation lists the differences from timm."""
        return self._policy("timm", (str(policy),), interpolation, _color(fill))

    def _policy(self, name: str, args: tuple[Any, ...], interpolation: str, fill: Color | None) -> Augment:
        return self._with(name, *args, interpolation, None if fill is None else _color(fill))  # type: ignore[no-any-return]

    def three_augment(self) -> Augment:
        """3-Augment of "DeiT III": one of grayscale, solarize and blur, followed by a jitter of
        0.3."""
        return self._with("three_augment")  # type: ignore[no-any-return]

    def simclr(self) -> Augment:
        """The color changes of SimCLR: jitter, grayscale and blur."""
        return self._with("simclr")  # type: ignore[no-any-return]

    def dino(self, blur: float, solarize: float) -> Augment:
        """The color changes of DINO, with these probabilities of blur and solarize. Use (1, 0) and
        (0.1, 0.2) for the global views, and (0.5, 0) for the local views."""
        return self._with("dino", float(blur), float(solarize))  # type: ignore[no-any-return]

    @classmethod
    def simclr_views(cls, size: Size) -> list[Augment]:
        """The two views of SimCLR for ``Loader(views=...)``: crops with :meth:`simclr`."""
        return [cls.train(size).simclr() for _ in range(2)]

    @classmethod
    def dino_views(cls, global_size: Size, local_size: Size, count: int) -> list[Augment]:
        """The views of DINO for ``Loader(views=...)``: two global views with 0.4 to 1 of the image's area, and
        ``count`` local views with 0.05 to 0.4 of it."""
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
        """torchvision's ``RandomAffine``. ``rotate`` and the shears are ranges in degrees, and a
        single number ``x`` stands for the range ``(-x, x)``. ``translate`` is the largest shift, as
        fractions of the width and the height. ``scale`` is a range of factors."""
        ranges = (
            _degrees("affine: rotate", rotate), _range("affine: translate", translate), _range("affine: scale", scale),
            _degrees("affine: shear_x", shear_x), _degrees("affine: shear_y", shear_y),
        )  # fmt: skip
        return self._with("affine", *ranges, interpolation, _color(fill))  # type: ignore[no-any-return]

    def rotate(self, degrees: float) -> Augment:
        """torchvision's ``RandomRotation(degrees)``: rotates by ``-degrees`` to ``degrees``, with the nearest
        pixel and black corners. ``affine`` has more options."""
        if not isinstance(degrees, Real):
            raise TypeError(
                f"rotate: degrees={degrees!r}: expected one number; affine(rotate=(low, high)) takes a range"
            )
        rotated: Augment = self._with("rotate", float(degrees))
        return rotated

    def perspective(self, scale: float = 0.5, probability: float = 0.5) -> Augment:
        """torchvision's ``RandomPerspective``, bilinear."""
        return self._with("perspective", float(scale), float(probability))  # type: ignore[no-any-return]

    # The rows of src/transform/ops, which its tests write.
    def invert(self, probability: float = 0.5) -> Augment:
        """Inverts all levels with this probability: torchvision's ``RandomInvert``."""
        return self._with("invert", float(probability))  # type: ignore[no-any-return]

    def posterize(self, bits: int, probability: float = 0.5) -> Augment:
        """Keeps the upper ``bits`` of each level with this probability: torchvision's ``RandomPosterize``."""
        return self._with("posterize", bits, float(probability))  # type: ignore[no-any-return]

    def solarize(self, threshold: float, probability: float = 0.5) -> Augment:
        """Inverts levels of ``threshold`` or more with this probability: torchvision's ``RandomSolarize``."""
        return self._with("solarize", float(threshold), float(probability))  # type: ignore[no-any-return]

    def equalize(self, probability: float = 0.5) -> Augment:
        """Spreads the levels evenly with this probability: torchvision's ``RandomEqualize``."""
        return self._with("equalize", float(probability))  # type: ignore[no-any-return]

    def autocontrast(self, probability: float = 0.5) -> Augment:
        """Stretches the levels to 0 to 255 with this probability: torchvision's ``RandomAutocontrast``."""
        return self._with("autocontrast", float(probability))  # type: ignore[no-any-return]

    def grayscale(self, probability: float = 0.1) -> Augment:
        """Removes the color with this probability: torchvision's ``RandomGrayscale``."""
        return self._with("grayscale", float(probability))  # type: ignore[no-any-return]

    def permute_channels(self, probability: float = 1.0) -> Augment:
        """Exchanges the color channels at random with this probability: torchvision's
        ``RandomChannelPermutation``."""
        return self._with("permute_channels", float(probability))  # type: ignore[no-any-return]

    def sharpness(self, factor: float, probability: float = 0.5) -> Augment:
        """Sharpens with this probability: torchvision's ``RandomAdjustSharpness``. The factor 0 smooths,
        1 changes nothing, 2 sharpens."""
        return self._with("sharpness", float(factor), float(probability))  # type: ignore[no-any-return]

    def blur(self, kernel: int, sigma: Range = (0.1, 2.0), probability: float = 1.0) -> Augment:
        """Blurs with this probability: torchvision's ``GaussianBlur(kernel, (low, high))`` in a
        ``RandomApply``. ``kernel`` is odd and at most 63 pixels; ``sigma`` is (low, high)."""
        return self._with("blur", kernel, _pair(sigma), float(probability))  # type: ignore[no-any-return]

    # End of the rows.

    def erase(self, erasing: RandomErasing) -> Augment:
        """Fills a random rectangle of the image after normalization. A second call replaces the
        first."""
        return self._with("erase", erasing)  # type: ignore[no-any-return]

    def mix(self, mix: Mix) -> Augment:
        """Mixes each sample of a finished batch with its neighbor."""
        return self._with("mix", mix)  # type: ignore[no-any-return]

    def mosaic(
        self, probability: float = 1.0, scale: tuple[float, float] = (0.5, 1.5), translate: float = 0.1
    ) -> Augment:
        """Combines the images of a sample and three partners, with their boxes and masks, like
        Ultralytics' mosaic. The four images meet at a random point of a canvas with twice the width
        and height of the output. The canvas is then scaled and shifted. Partners are drawn from the
        samples of the epoch.

        Use ``from_epoch`` to train without mosaics in the last epochs. If samples have labels, pass
        ``drop_field=["label"]``, because a label is the class of a single image.

        Args:
            probability: fraction of samples that become mosaics. The others are cropped by the
                first step of the augmentation.
            scale: range of the scale factor, which is drawn uniformly.
            translate: maximum shift along each axis, as a fraction of the output's side.
        """
        return self._with("mosaic", float(probability), _pair(scale), float(translate))  # type: ignore[no-any-return]

    def copy_paste(self, probability: float = 1.0, margin: int = 2) -> Augment:
        """Pastes objects from a second sample into the image, like torchvision's
        ``SimpleCopyPaste``. Masks define the pixels of the objects. The second sample is drawn from
        the samples of the epoch. The image's own objects lose the pixels that are covered, and are
        dropped if no pixel remains.

        The loader needs a field of :class:`Boxes` with ``masks=True``. If samples have labels, it
        also needs ``drop_field=["label"]``.

        Args:
            probability: fraction of samples that receive objects from a second sample.
            margin: width of the border around the masks that is pasted together with the objects, 0
                to 64 pixels.
        """
        return self._with("copy_paste", float(probability), int(margin))  # type: ignore[no-any-return]
