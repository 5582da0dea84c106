"""Tests that augmentations give the same result for any number of workers, and can be printed,
compared and pickled by value, and that each of their methods changes the pixels."""

from __future__ import annotations

import functools
import pickle
import re
from typing import Any, Callable

import numpy as np
import pytest
import warpfeed.collate
from conftest import contents, need
from functions import turned
from warpfeed import Augment, Boxes, ColorJitter, ConfigError, Loader, Mask, Mix, RandomErasing

OPTIONS: dict[str, Any] = {"batch_size": 12, "shuffle": True, "seed": 3, "subset": range(24), "output": "numpy"}

#: The augmentations to which other methods add operations.
BEGINNINGS: dict[str, Augment] = {
    "train": Augment.train(32),
    "eval": Augment.eval(40, 32),
    "center_crop": Augment.center_crop(24),
    "resize": Augment.resize((24, 32)),
    "pass_through": Augment.pass_through((40, 48)),
    "cover": Augment.cover((40, 32)),
    "letterbox": Augment.letterbox((40, 32)),
    "pad_to": Augment.pad_to((80, 96)),
    "scale_jitter": Augment.scale_jitter(32, 0.5, 2.0),
    "iou_crop": Augment.iou_crop((24, 32)),
    "random_crop": Augment.random_crop(24),
    "random_resize": Augment.random_resize(32, 20, 60),
    "shortest_size": Augment.shortest_size([20, 24, 30], 48),
    "preset": Augment.preset("classification-ta_wide", 32),
}

#: For each other method: an augmentation to call it on, and the call.
METHODS: dict[str, tuple[Augment, Callable[[Augment], Augment]]] = {
    "fill": (Augment.letterbox((48, 32)), lambda a: a.fill(10, 200, 90)),
    "with_output_size": (Augment.train(32), lambda a: a.with_output_size((24, 40))),
    "padding": (Augment.random_crop(32), lambda a: a.padding(15)),
    "padding_mode": (Augment.random_crop(32).padding(15), lambda a: a.padding_mode("reflect")),
    "shrink_larger": (Augment.pad_to(96), lambda a: Augment.pad_to(16).shrink_larger()),
    "pad_if_needed": (Augment.random_crop(32), lambda a: Augment.random_crop(64).fill(9, 9, 200).pad_if_needed()),
    "interpolation": (Augment.train(32), lambda a: a.interpolation("bicubic")),
    "antialias": (Augment.eval(20, 16), lambda a: a.antialias(False)),
    "from_epoch": (Augment.train(32), lambda a: Augment.resize(32, 32).from_epoch(1, a)),
    "mosaic": (Augment.letterbox(32, 32), lambda a: a.mosaic(1.0, (0.8, 1.2), 0.2)),
    "zoom_out": (Augment.iou_crop(32, 32), lambda a: a.zoom_out(1.0, 1.5, 3.0)),
    "photometric_distort": (Augment.train(32), lambda a: a.photometric_distort(0.95)),
    "copy_paste": (Augment.scale_jitter(32, 0.9, 1.5), lambda a: a.copy_paste(0.9, 1)),
    "scale": (Augment.train(32), lambda a: a.scale(0.3, 0.5)),
    "ratio": (Augment.train(32), lambda a: a.ratio(2.0, 3.0)),
    "flip": (Augment.resize(32, 32), lambda a: a.flip(1.0)),
    "vertical_flip": (Augment.resize(32, 32), lambda a: a.vertical_flip(1.0)),
    "jitter": (Augment.train(32), lambda a: a.jitter(ColorJitter(0.4, 0.3, 0.2, 0.1, 0.9))),
    "rand_augment": (Augment.train(32), lambda a: a.rand_augment(3, 15, 31, "bilinear", (9, 8, 7))),
    "trivial_augment_wide": (Augment.train(32), lambda a: a.trivial_augment_wide()),
    "auto_augment": (Augment.train(32), lambda a: a.auto_augment("cifar10", fill=(1, 2, 3))),
    "aug_mix": (Augment.train(32), lambda a: a.aug_mix(5, 2, 3)),
    "timm": (Augment.train(32), lambda a: a.timm("rand-m9-mstd0.5-inc1")),
    "three_augment": (Augment.train(32), lambda a: a.three_augment()),
    "simclr": (Augment.train(32), lambda a: a.simclr()),
    "dino": (Augment.train(32), lambda a: a.dino(0.1, 0.2)),
    "affine": (
        Augment.train(32),
        lambda a: a.affine((-30, 30), (0.1, 0.2), (0.8, 1.2), (-5, 5), (-4, 4), "bilinear", (5, 6, 7)),
    ),
    "rotate": (Augment.train(32), lambda a: a.rotate(30)),
    "perspective": (Augment.train(32), lambda a: a.perspective(0.5, 1.0)),
    # Generated: one item per random effect in src/transform/ops.
    "invert": (Augment.train(32), lambda a: a.invert(1.0)),
    "posterize": (Augment.train(32), lambda a: a.posterize(2, 1.0)),
    "solarize": (Augment.train(32), lambda a: a.solarize(64.5, 1.0)),
    "equalize": (Augment.train(32), lambda a: a.equalize(1.0)),
    "autocontrast": (Augment.train(32), lambda a: a.autocontrast(1.0)),
    "grayscale": (Augment.train(32), lambda a: a.grayscale(1.0)),
    "permute_channels": (Augment.train(32), lambda a: a.permute_channels(1.0)),
    "sharpness": (Augment.train(32), lambda a: a.sharpness(4.0, 1.0)),
    "blur": (Augment.train(32), lambda a: a.blur(5, (1.0, 2.0), 1.0)),
    # End of the generated items.
    "erase": (
        Augment.train(32),
        lambda a: a.erase(RandomErasing(1.0).scale(0.1, 0.2).ratio(0.5, 2.0).value(0.1, 0.2, 0.3)),
    ),
    "mix": (Augment.train(32), lambda a: a.mix(Mix.either(0.2, 1.0).probability(0.9))),
}


def made(name: str) -> Augment:
    if name in BEGINNINGS:
        return BEGINNINGS[name]
    base, call = METHODS[name]
    return call(base)


def delivered(mini: str, augment: Augment, **options: Any) -> Any:
    of_a_size = (BEGINNINGS["center_crop"], BEGINNINGS["pass_through"])
    if augment in of_a_size or any(name in repr(augment) for name in ("iou_crop", "random_crop", "pad_to")):
        mini = Sized(augment)  # type: ignore[assignment]
    if "iou_crop" in repr(augment):
        options["fields"] = {"boxes": Boxes(1)}
    if "mix(Mix" in repr(augment):
        options["soft_labels"] = (4, 0.1)
    if "mosaic" in repr(augment):
        options["drop_field"] = ["label"]
    if "copy_paste" in repr(augment):
        mini = Sized(augment)  # type: ignore[assignment]
        options |= {"drop_field": ["label"], "fields": {"boxes": Boxes(2, masks=True)}}
    return contents(Loader(mini, augment=augment, **{**OPTIONS, **options}))


class Sized:
    """A dataset of 48x40 images, each with one box if `augment` needs boxes."""

    def __init__(self, augment: Augment) -> None:
        self.boxed = "iou_crop" in repr(augment) or "copy_paste" in repr(augment)

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, Any]:
        original = np.random.default_rng(index).integers(0, 256, (40, 48, 3), np.uint8)
        boxes: dict[str, Any] = {}
        if self.boxed:
            masks = b"[[[4,5,30,5,30,35,4,35]]]"
            boxes = {"boxes": np.array([[4, 5, 30, 35]], np.float32), "boxes.masks.json": masks}
        return {"image": original, "label": index % 4, **boxes}


def test_every_method_of_an_augmentation_has_a_case() -> None:
    public = {name for name in vars(Augment) if not name.startswith("_")}
    # test_views.py tests the methods that return lists of augmentations.
    lists = {"simclr_views", "dino_views"}
    assert public == {*BEGINNINGS, *METHODS, *lists}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_changes_the_pixels(mini: str, name: str) -> None:
    base, call = METHODS[name]
    before, after = delivered(mini, base), delivered(mini, call(base))
    if name == "copy_paste":  # without `copy_paste`, the sample has a different source and no boxes
        before = delivered(mini, base.copy_paste(0.0))
    assert [batch[2] for batch in before] == [batch[2] for batch in after]
    assert all(a[3]["image"] != b[3]["image"] for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", [*BEGINNINGS, *METHODS])
def test_an_augmentation_is_the_same_for_any_number_of_workers(mini: str, name: str) -> None:
    one, two = (delivered(mini, made(name), num_workers=workers) for workers in (1, 2))
    assert one == two and len(one) >= 2
    assert delivered(mini, made(name), shuffle=True, seed=4) != one


@pytest.mark.parametrize("name", [*BEGINNINGS, *METHODS])
def test_an_augmentation_survives_printing_and_pickling(name: str) -> None:
    augment = made(name)
    again = eval(repr(augment))
    assert again == augment and repr(again) == repr(augment) and hash(again) == hash(augment)
    assert pickle.loads(pickle.dumps(augment)) == augment
    other = augment.flip(0.25)
    assert other != augment and repr(other).startswith(repr(augment))


@pytest.mark.parametrize(
    "part",
    [
        ColorJitter(0.4, hue=0.1, probability=0.5),
        RandomErasing(0.25).scale(0.02, 0.3).ratio(0.3, 3.3).value(0.5, 1.0, 2.0),
        RandomErasing(0.25).noise(),
        RandomErasing(0.25).random_color(0.5),
        Mix.mixup(0.8),
        Mix.cutmix(1.0).probability(0.5),
        Mix.either(0.2, 1.0),
    ],
)
def test_augmentation_options_survive_printing_and_pickling(part: Any) -> None:
    assert eval(repr(part)) == part and pickle.loads(pickle.dumps(part)) == part


@pytest.mark.parametrize(
    ("augment", "numbers"),
    [
        (Augment.train(32).scale(0.9, 0.1), ("0.9", "0.1")),
        (Augment.train(32).ratio(3.0, 0.5), ("3", "0.5")),
        (Augment.train(32).flip(1.5), ("1.5", "1")),
        (Augment.train(32).vertical_flip(-0.5), ("-0.5", "0")),
        (Augment.eval(20, 32), ("20", "32")),
        (Augment.scale_jitter(32, 2.0, 0.5), ("2", "0.5")),
        (Augment.random_crop(32).padding(40), ("40", "32")),
        (Augment.random_resize(32, 50, 40), ("50", "40")),
        (Augment.shortest_size([40, 80], 60), ("80", "60")),
        (Augment.resize(32, 32).copy_paste(margin=70), ("70", "64")),
        (Augment.train(32).from_epoch(3, Augment.train(0)), ("3", "0x0", "1")),
        (Augment.train(32).from_epoch(3, Augment.train(40)).from_epoch(2, Augment.train(48)), ("3", "2")),
        (Augment.train(32).erase(RandomErasing(0.5).noise(-1.0)), ("-1",)),
        (Augment.train(32).jitter(ColorJitter(hue=0.7)), ("0.7", "0.5")),
        (Augment.train(32).rand_augment(2, 31, 31), ("31", "30")),
        (Augment.train(32).aug_mix(11), ("11", "10")),
        (Augment.train(32).affine(rotate=(30, -30)), ("30", "-30")),
        (Augment.train(32).affine(translate=(0.1, 1.5)), ("1.5", "1")),
        (Augment.train(32).perspective(1.5), ("1.5", "1")),
        (Augment.train(32).grayscale(1.5), ("1.5", "1")),
        (Augment.train(32).invert(2.0), ("2", "1")),
        (Augment.train(32).posterize(9), ("9", "8")),
        (Augment.train(32).equalize(-1.0), ("-1", "0")),
        (Augment.train(32).autocontrast(7.0), ("7", "1")),
        (Augment.train(32).sharpness(-2.0), ("-2", "0")),
        (Augment.train(32).permute_channels(1.25), ("1.25", "1")),
        (Augment.train(32).blur(4), ("4",)),
        (Augment.train(32).blur(5, (2.0, 1.0)), ("2", "1")),
        (Augment.train(32).dino(1.5, 0.0), ("1.5", "1")),
        (Augment.train(32).erase(RandomErasing(1.5)), ("1.5", "1")),
        (Augment.train(32).erase(RandomErasing(0.5).scale(0.5, 0.1)), ("0.5", "0.1")),
        (Augment.train(32).mix(Mix.mixup(-1.0)), ("-1", "positive")),
        (Augment.train(32).mix(Mix.mixup(1.0).probability(1.5)), ("1.5", "1")),
    ],
)
def test_an_error_names_the_number_and_its_limit(mini: str, augment: Augment, numbers: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        Loader(mini, augment=augment, soft_labels=(4, 0.1), **OPTIONS)
    assert all(number in str(refused.value) for number in numbers), refused.value


@pytest.mark.parametrize(
    "call",
    [
        lambda: Augment.train(32).auto_augment("imagenet21k"),  # type: ignore[arg-type]
        lambda: Augment.train(32).rand_augment(interpolation="bicubic"),  # type: ignore[arg-type]
        lambda: Augment.train(32).timm("rand-q9"),
        lambda: Augment.train(32).timm("no-policy"),
        lambda: Augment.train(32).interpolation("area"),  # type: ignore[arg-type]
        lambda: Augment.random_crop(32).padding_mode("wrap"),  # type: ignore[arg-type]
        lambda: Augment.preset("classification-v9", 32),
    ],
)
def test_an_error_names_the_unknown_word(mini: str, call: Callable[[], Augment]) -> None:
    with pytest.raises((ConfigError, ValueError), match="imagenet21k|bicubic|rand-q9|no-policy|area|wrap|classification-v9"):
        Loader(mini, augment=call(), **OPTIONS)


def test_sizes_are_height_and_width_as_in_torchvision(mini: str) -> None:
    """Two separate numbers are rejected unless they are equal, because libraries disagree about
    their order."""
    for size, shape in [((24, 40), (24, 40)), ([24, 40], (24, 40)), (32, (32, 32)), ((32,), (32, 32))]:
        for augment in [
            Augment.resize(size), Augment.letterbox(size), Augment.train(size), Augment.eval(48, size), Augment.center_crop(size),
            Augment.train(8).with_output_size(size),
        ]:  # fmt: skip
            [images, *_], *_ = Loader(mini, batch_size=4, augment=augment, output="numpy")
            assert images.shape == (4, *shape, 3), augment
    assert Augment.resize(height=24, width=40) == Augment.resize((24, 40)) != Augment.resize((40, 24))
    assert Augment.resize(32, 32) == Augment.resize(32) and Augment.train((32, 32)) == Augment.train(32)
    assert repr(Augment.letterbox([24, 40])) == "Augment.letterbox((24, 40))"
    for invalid in [
        lambda: Augment.resize(24, 40), lambda: Augment.letterbox(24, 40), lambda: Augment.iou_crop(24, 40),
        lambda: Augment.pass_through(24, 40), lambda: Augment.train(8).with_output_size(24, 40),
    ]:  # fmt: skip
        with pytest.raises(TypeError, match=r"\(24, 40\): the order of two numbers is ambiguous; expected a tuple \(height, width\)"):
            invalid()
    for invalid, call in [
        (lambda: Augment.train(24, 40), "train(24, 40)"), (lambda: Augment.eval(48, 24, 40), "eval(48, 24, 40)"),
        (lambda: Augment.center_crop(8, 8), "center_crop(8, 8)"),
        (lambda: Augment.random_crop(24, 40), "random_crop(24, 40)"),
    ]:  # fmt: skip
        with pytest.raises(TypeError, match=re.escape(f"Augment.{call}: expected the size as one number for a square")):
            invalid()
    for invalid in [
        lambda: Augment.resize(), lambda: Augment.resize((1, 2, 3)), lambda: Augment.resize(height=3),  # type: ignore[call-overload]
        lambda: Augment.resize(8, height=3, width=3), lambda: Augment.train((1, 2, 3)), lambda: Augment.resize(()),  # type: ignore[call-overload]
    ]:  # fmt: skip
        with pytest.raises(TypeError, match="expected a tuple"):
            invalid()


def test_noise_fills_a_rectangle_with_a_value_per_pixel(mini: str) -> None:
    erasing = RandomErasing(1.0).scale(0.2, 0.3)
    options = {**OPTIONS, "shuffle": True, "seed": 3, "normalize": "imagenet"}
    plain, value, noise = (
        np.concatenate([images.copy() for images, _ in loader])
        for loader in (
            Loader(mini, augment=augment, **options)
            for augment in (
                Augment.train(32),
                Augment.train(32).erase(erasing),
                Augment.train(32).erase(erasing.noise()),
            )
        )
    )
    erased = (plain != value).any(axis=-1)
    assert 0.15 < erased.mean() < 0.35
    assert (noise[~erased] == plain[~erased]).all() and (value[erased] == 0).all()
    assert abs(noise[erased].mean()) < 0.05 and abs(noise[erased].std() - 1) < 0.05


def test_a_bicubic_evaluation_equals_pillow(tmp_path: Any) -> None:
    image = need("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (20, 24, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    (tmp_path / "a").mkdir()
    image.fromarray(pixels).save(tmp_path / "a" / "0.png")
    augment = Augment.eval(96, 80).interpolation("bicubic")
    loader = Loader(str(tmp_path), batch_size=1, augment=augment, output="numpy")
    (images, _) = next(iter(loader))
    resized = image.fromarray(pixels).resize((115, 96), image.Resampling.BICUBIC)
    expected = np.asarray(resized)[8:88, 18:98].astype(int)
    difference = abs(images[0].astype(int) - expected)
    assert difference.max() <= 2 and difference.mean() < 0.02


class Drawn:
    """A dataset of 24 noise images. The shorter side is `side` in at least nine of them, and random
    in the others."""

    def __init__(self, side: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        shorter = [side, *(side if n % 3 == 0 else int(rng.integers(1, 3 * side)) for n in range(23))]
        longer = [short + int(rng.integers(2)) * int(rng.integers(50)) for short in shorter]
        sizes = [pair if rng.integers(2) else pair[::-1] for pair in zip(shorter, longer, strict=True)]
        kinds = [rng.integers(0, 256, (*size, 3), np.uint8) for size in sizes]
        # Black and white next to noise make the filter overshoot.
        self.images = [np.where(rng.random(kind.shape) < 0.5, kind, kind // 128 * 255).astype(np.uint8) for kind in kinds]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self.images[index]}


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("filter", ["bicubic", "bilinear_exact", "nearest"])
def test_evaluations_are_bit_identical_to_torchvision(filter: Any, antialias: bool, torch: Any) -> None:
    v2 = need("torchvision.transforms.v2")
    mode = v2.InterpolationMode(filter.removesuffix("_exact"))
    rng = np.random.default_rng(7)
    for seed in range(12):
        crop = int(rng.integers(1, 60))
        shorter = crop + int(rng.integers(0, 20))
        evaluate = v2.Compose([v2.Resize(shorter, mode, antialias=antialias), v2.CenterCrop(crop)])
        data, augment = Drawn(shorter, seed), Augment.eval(shorter, crop).interpolation(filter).antialias(antialias)
        (batch,) = Loader(data, augment=augment, batch_size=24, drop_field=["label"], output="numpy", layout="nchw")
        for original, ours in zip(data.images, batch["image"], strict=True):
            theirs = evaluate(torch.from_numpy(original).permute(2, 0, 1).contiguous()).numpy()
            assert (ours == theirs).all(), (original.shape, shorter, crop, (ours != theirs).mean())


@pytest.mark.parametrize("filter", ["bilinear", "bilinear_exact", "bicubic", "lanczos", "nearest"])
def test_images_of_the_right_size_are_only_cropped(filter: Any) -> None:
    data = Drawn(40, 3)
    same = [index for index, original in enumerate(data.images) if min(original.shape[:2]) == 40]
    augments = [Augment.eval(40, 30), Augment.random_resize(30, 40, 41), Augment.center_crop(30)]
    evaluated, resized, cropped = (
        next(iter(Loader(
            data, augment=augment.interpolation(filter), subset=same, batch_size=24, drop_field=["label"], output="numpy"
        )))["image"]
        for augment in augments
    )  # fmt: skip
    assert len(same) >= 8 and (evaluated == cropped).all()
    for original, part in zip((data.images[index] for index in same), resized, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(original, part.shape)
        assert (windows == part).all((-3, -2, -1)).any()
    decoder = warpfeed.Decoder(max_batch=24, augment=augments[0].interpolation(filter), output="numpy")
    assert (decoder.decode([data.images[index] for index in same]).images == cropped).all()


def letterboxed(height: int, width: int, rows: int, columns: int) -> tuple[int, int, int, int]:
    """Returns the left and the top padding, and the size of the image, as Ultralytics' LetterBox
    computes them."""
    ratio = min(rows / height, columns / width)
    wide, high = round(width * ratio), round(height * ratio)
    across, down = (columns - wide) / 2, (rows - high) / 2
    return round(across - 0.1), round(down - 0.1), wide, high


def test_a_letterbox_matches_ultralytics() -> None:
    class Boxed:
        def __len__(self) -> int:
            return 400

        @staticmethod
        def size(index: int) -> tuple[int, int]:
            height, width = np.random.default_rng(index).integers(20, 200, 2)
            return int(height), int(width)

        def __getitem__(self, index: int) -> dict[str, Any]:
            height, width = self.size(index)
            return {"image": np.full((height, width, 3), 200, np.uint8), "boxes": np.array([[0, 0, width, height]], np.float32)}

    for rows, columns in [(64, 64), (40, 71), (33, 48)]:
        fields = {"boxes": Boxes(1), "geometry": warpfeed.Geometry()}
        options: dict[str, Any] = {"drop_field": ["label"], "output": "numpy", "batch_size": 400, "fields": fields}
        (batch,) = Loader(Boxed(), augment=Augment.letterbox((rows, columns)).fill(1, 2, 3), **options)
        for index, image in enumerate(batch["image"]):
            left, top, wide, high = letterboxed(*Boxed.size(index), rows, columns)
            shown = np.zeros((rows, columns), bool)
            shown[top : top + high, left : left + wide] = True
            assert (image[shown] == 200).all() and (image[~shown] == (1, 2, 3)).all(), (Boxed.size(index), rows, columns)
            assert batch.image_sizes[index] == (high, wide)
            assert np.allclose(batch["boxes"][index, 0], [left, top, left + wide, top + high], atol=1e-4)
            assert np.allclose(batch["geometry"][index][:, 2], [left, top], atol=1e-4)


def test_a_single_angle_is_a_range_around_zero(mini: str) -> None:
    plain = Augment.resize(32)
    for one, two in [
        (plain.affine(20), plain.affine((-20, 20))),
        (plain.affine(rotate=20.0, shear_x=5, shear_y=3), plain.affine((-20, 20), None, None, (-5, 5), (-3, 3))),
        (plain.affine(np.float32(20)), plain.affine(rotate=[-20, 20])),  # type: ignore[arg-type]
    ]:
        assert one == two and eval(repr(one)) == one
    rotated, affine = (contents(Loader(mini, augment=augment, **OPTIONS)) for augment in (plain.rotate(20), plain.affine(20)))
    assert rotated == affine
    for call, words in [
        (lambda: plain.affine("20"), "affine: rotate='20': expected two numbers, or one number x"),
        (lambda: plain.affine((1, 2, 3)), r"affine: rotate=\(1, 2, 3\): expected two numbers"),
        (lambda: plain.affine(translate=0.1), r"affine: translate=0.1: expected two numbers$"),
        (lambda: plain.affine(scale=2), r"affine: scale=2: expected two numbers$"),
        (lambda: plain.rotate((-10, 20)), r"rotate: degrees=\(-10, 20\): expected one number; for a range, use affine\(rotate="),
    ]:  # fmt: skip
        with pytest.raises(TypeError, match=words):
            call()
    with pytest.raises(ConfigError, match="affine: rotate is 20 to -20, but must satisfy -360 <= low <= high"):
        Loader(mini, augment=plain.rotate(-20), **OPTIONS)


def test_mixing_stops_at_the_given_epoch(mini: str) -> None:
    augment = Augment.train(32).mix(Mix.mixup(1.0)).from_epoch(1, Augment.train(32))
    loader = Loader(mini, augment=augment, soft_labels=(4, 0.0), **OPTIONS)
    first, second = ([batch for batch in loader] for _ in range(2))
    hard = [np.isin(np.asarray(batch["soft_label"]), (0.0, 1.0)).all() for batch in (*first, *second)]
    assert hard == [False, False, True, True]


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_the_image_size_may_change_between_epochs(mini: str, output: str) -> None:
    if output == "torch":
        need("torch")
    sides = [16, 24, 24, 40]
    augment = Augment.train(sides[0])
    for epoch, side in enumerate(sides[1:], 1):
        augment = augment.from_epoch(epoch, Augment.train(side))
    options: dict[str, Any] = {**OPTIONS, "output": output, "views": [augment, Augment.resize((8, 12))], "drop_field": ["label"]}
    with Loader(mini, **options) as loader:
        shapes = []
        for epoch, side in enumerate(sides):
            alone = Loader(mini, **{**options, "views": [Augment.train(side), Augment.resize((8, 12))]})
            alone.set_epoch(epoch)
            for batch, expected in zip(loader, alone, strict=True):
                for ours, theirs in zip(batch["views"], expected["views"], strict=True):
                    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
                shapes.append(tuple(batch["views"][0].shape))
        layout = (lambda side: (12, 3, side, side)) if output == "torch" else (lambda side: (12, side, side, 3))
        assert shapes == [layout(side) for side in sides for _ in range(2)]
        # Each epoch must have its size from the first batch on.
        state = loader.state_dict()
        assert next(iter(loader))["views"][0].shape == layout(40)
    again = Loader(mini, **options)
    again.load_state_dict(state)
    assert next(iter(again))["views"][0].shape == layout(40)


@pytest.mark.parametrize(("output", "layout"), [("numpy", "nhwc"), ("numpy", "nchw"), ("torch", None)])
def test_pad_to_keeps_the_size_of_each_image(output: str, layout: str | None) -> None:
    if output == "torch":
        need("torch")
    fields = {"boxes": Boxes(1), "mask": Mask("u8", fill=9)}
    augment = Augment.pad_to((64, 80)).fill(1, 2, 3).flip(0.5)
    options: dict[str, Any] = {"drop_field": ["label"], "fields": fields, "output": output, "batch_size": 4}
    if layout is not None:
        options["layout"] = layout
    seen = set()
    for copy in (False, True):
        for batch in Loader(Colored(), augment=augment, shuffle=True, seed=5, copy=copy, **options):
            for number, original, (height, width), image in zip(
                batch.ids, batch.unpadded_images, batch.image_sizes, batch["image"], strict=True
            ):
                assert (height, width) == Colored.size(number)
                channels_last = layout == "nhwc"
                pixels = np.asarray(original) if channels_last else np.asarray(original).transpose(1, 2, 0)
                assert pixels.shape == (height, width, 3) and (pixels == (number, 200, 100)).all()
                padded = np.asarray(image) if channels_last else np.asarray(image).transpose(1, 2, 0)
                assert padded.shape == (64, 80, 3)
                assert (padded[height:] == (1, 2, 3)).all() and (padded[:, width:] == (1, 2, 3)).all()
                seen.add((height, width))
    assert len(seen) > 8
    trim = functools.partial(warpfeed.collate.trim, multiple=8)
    for batch in Loader(Colored(), augment=augment, collate=trim, **options):
        sizes = [Colored.size(number) for number in batch.ids]
        height, width = (-(-max(side) // 8) * 8 for side in zip(*sizes, strict=True))
        assert batch["mask"].shape == (4, height, width)
        assert batch["image"].shape == ((4, height, width, 3) if layout == "nhwc" else (4, 3, height, width))
        assert (np.asarray(batch["boxes"])[:, 0, 2:].astype(int) == [side[::-1] for side in sizes]).all()


@pytest.mark.parametrize("processes", [0, 1])
def test_an_image_transform_gets_images_without_padding(processes: int) -> None:
    for augment in [Augment.pad_to((64, 80)), Augment.letterbox((72, 60))]:
        options: dict[str, Any] = {"augment": augment.fill(1, 2, 3), "output": "numpy", "batch_size": 4, "subset": range(8)}
        options["drop_field"] = ["label"]
        batches = zip(Loader(Slopes(), **options), Loader(Slopes(), image_transform=turned, image_transform_processes=processes, **options), strict=True)
        for plain, moved in batches:
            assert plain.image_sizes == moved.image_sizes
            for before, after, image in zip(plain.unpadded_images, moved.unpadded_images, moved["image"], strict=True):
                assert (before[::-1, ::-1] == after).all() and not (after == (1, 2, 3)).all(-1).any()
                assert (image == (1, 2, 3)).all(-1).sum() == image.shape[0] * image.shape[1] - after.shape[0] * after.shape[1]


def test_an_image_larger_than_the_output_fails_or_shrinks() -> None:
    options: dict[str, Any] = {"drop_field": ["label"], "output": "numpy", "batch_size": 16}
    with pytest.raises(warpfeed.WarpfeedError, match="the image is .* allows at most 30x64") as e:
        list(Loader(Colored(), augment=Augment.pad_to((64, 30)), **options))
    assert "sample" in str(e.value)
    (batch,) = Loader(Colored(), augment=Augment.pad_to((64, 30)).shrink_larger(), **options)
    for number, size in enumerate(batch.image_sizes):
        height, width = Colored.size(number)
        assert size == ((height, width) if width <= 30 else (height * 30 // width, 30))


class Colored:
    """A dataset of single-color images. The red value is the sample number, and one box covers the
    image."""

    def __len__(self) -> int:
        return 16

    @staticmethod
    def size(index: int) -> tuple[int, int]:
        return 20 + 7 * index % 40, 20 + 11 * index % 50

    def __getitem__(self, index: int) -> dict[str, Any]:
        height, width = self.size(index)
        original = np.full((height, width, 3), (index, 200, 100), np.uint8)
        return {
            "image": original,
            "boxes": np.array([[0, 0, width, height]], np.float32),
            "boxes.class": np.array([index]),
            "mask": np.full((height, width), index, np.uint8),
        }


class Slopes(Colored):
    """Images in which adjacent pixels differ."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        height, width = self.size(index)
        return {"image": np.arange(height * width * 3, dtype=np.uint32).reshape(height, width, 3).astype(np.uint8) // 2 + 100}


class Labeled(Colored):
    """The images of `Colored`, with labels."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**super().__getitem__(index), "label": index % 3}


def test_a_mosaic_combines_images_and_boxes_of_four_samples() -> None:
    plain = Augment.letterbox(32, 32).fill(255, 0, 0)
    augment = plain.mosaic().from_epoch(1, plain)
    fields = {"boxes": Boxes(4, columns={"class": "i64"})}
    options: dict[str, Any] = {"drop_field": ["label"], "fields": fields, "output": "numpy", "layout": "nhwc", "batch_size": 4}
    largest = []
    with Loader(Colored(), augment=augment, shuffle=True, seed=5, **options) as loader:
        for _ in range(2):
            seen = []
            for batch in loader:
                rows = zip(batch["image"], batch["boxes"], batch["boxes.class"], batch["boxes.count"], strict=True)
                for image, boxes, classes, count in rows:
                    drawn = np.full((32, 32, 3), (255, 0, 0), np.uint8)
                    for (x1, y1, x2, y2), own in zip(boxes[:count].astype(int), classes[:count], strict=True):
                        drawn[y1:y2, x1:x2] = (own, 200, 100)
                    np.testing.assert_array_equal(image, drawn)
                    seen.append(len(set(classes[:count].tolist())))
            largest.append(max(seen))
    assert largest[0] > 2 and largest[1] == 1
    with_label = Labeled()
    with pytest.raises(ConfigError, match=r'a label is the class of a single sample: use drop_field=\["label"\]'):
        Loader(with_label, augment=augment, **{**options, "drop_field": []})
    for batch, bare in zip(
        Loader(Colored(), augment=augment, **options),
        Loader(Colored(), augment=augment, **{**options, "drop_field": []}), strict=True,
    ):  # fmt: skip
        assert (batch["image"] == bare["image"]).all() and "label" not in bare
    with pytest.raises(ConfigError, match="scale is 2 to 1"):
        Loader(Colored(), augment=plain.mosaic(scale=(2.0, 1.0)), **options)


@pytest.mark.parametrize("name", METHODS)
def test_a_run_does_not_resume_with_a_changed_augmentation(mini: str, name: str) -> None:
    base, call = METHODS[name]
    extra: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 3, "drop_field": ["label"]}
    if name == "mix":
        extra = {"batch_size": 8, "shuffle": True, "seed": 3, "soft_labels": (4, 0.1)}
    if name == "zoom_out":
        extra["fields"] = {"boxes": Boxes(1)}
    if name == "copy_paste":
        extra["fields"] = {"boxes": Boxes(2, masks=True)}
    state = Loader(mini, augment=call(base), **extra).state_dict()
    assert Loader(mini, augment=call(base), resume=state, **extra).state_dict() == state
    with pytest.raises(ConfigError, match='the augmentation differs in step .*remove "augment" from the state'):
        Loader(mini, augment=base, resume=state, **extra)
    del state["augment"]
    assert Loader(mini, augment=base, resume=state, **extra).epoch == 0
