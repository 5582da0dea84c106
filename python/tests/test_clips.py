"""Tests ``Image(frames=T)`` on datasets in which each sample is a list of T images. Each
frame must equal, bit for bit, the same image loaded alone, and have the annotations of that
image."""

from __future__ import annotations

import io
import struct
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warpfeed import (
    Augment, Boxes, ConfigError, DenseMap, Image, Keypoints, Loader, Mask, Mix, Patches, WarpfeedError, collate,
)  # fmt: skip

OPTIONS: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3, "output": "numpy"}


def pixels(clip: int, frame: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng((clip, frame)).integers(0, 256, (40 + clip, 50, 3), np.uint8)


class Clips:
    """A dataset of eight clips. ``as_list`` converts the frames of a clip to a field's value."""

    def __init__(self, count: int, as_list: Any = list, name: str = "image") -> None:
        self.count, self.as_list, self.name = count, as_list, name

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {self.name: self.as_list([pixels(index, frame) for frame in range(self.count)]), "label": index}


class Frame:
    """A dataset with only frame ``frame`` of each clip."""

    def __init__(self, frame: int) -> None:
        self.frame = frame

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return pixels(index, self.frame), index


def frames(count: int) -> dict[str, Any]:
    return {"fields": {"image": Image(frames=count)}}


def encoded(array: Any) -> bytes:
    """Encodes an image as BMP: rows from bottom to top, each padded to a multiple of four bytes."""
    height, width, _ = array.shape
    rows = np.pad(array[::-1, :, ::-1].reshape(height, width * 3), ((0, 0), (0, -width * 3 % 4)))
    words = [54 + rows.size, 0, 54, 40, width, height, 1 | 24 << 16, 0, rows.size, 2835, 2835, 0, 0]
    return b"BM" + struct.pack("<13I", *words) + rows.tobytes()


@pytest.mark.parametrize("count", [1, 3, 10])
@pytest.mark.parametrize("layout", ["nhwc", "nchw", "channels_last"])
def test_each_frame_equals_the_image_loaded_alone(count: int, layout: str) -> None:
    options = {**OPTIONS, "augment": Augment.train(24), "layout": layout}
    alone = [[images for images, _ in Loader(Frame(frame), **options)] for frame in range(count)]
    for workers in (1, 3):
        for number, (images, labels) in enumerate(Loader(Clips(count), **frames(count), num_workers=workers, **options)):
            shape = (24, 24, 3) if layout == "nhwc" else (3, 24, 24)
            assert images.shape == (4, count, *shape) and len(labels) == 4
            assert all(np.array_equal(images[:, frame], alone[frame][number]) for frame in range(count))


def test_frames_may_have_any_type_of_a_single_image(tmp_path: Path) -> None:
    def paths(images: list[Any]) -> list[Path]:
        files = [tmp_path / f"{hash(image.tobytes())}.bmp" for image in images]
        for image, file in zip(images, files, strict=True):
            # A different thread may read the same sample at the same time.
            partial = file.with_suffix(f".{threading.get_ident()}")
            partial.write_bytes(encoded(image))
            partial.replace(file)
        return files

    options = {**OPTIONS, "augment": Augment.eval(40, 32)}
    expected = [images for images, _ in Loader(Clips(2), **frames(2), **options)]
    for as_list in (tuple, np.stack, lambda images: [encoded(images[0]), images[1]], paths):
        actual = [images for images, _ in Loader(Clips(2, as_list), **frames(2), **options)]
        assert all(np.array_equal(a, b) for a, b in zip(actual, expected, strict=True)), as_list
    # If the name is not that of an image, only encoded frames are recognized as a clip.
    files = Clips(2, lambda images: [encoded(image) for image in images], "top")
    batches = Loader(files, fields={"image": Image("top", frames=2)}, **options)
    assert all(np.array_equal(a, b) for (a, _), b in zip(batches, expected, strict=True))


def test_torch_tensors_are_frames(torch: Any) -> None:
    options = {**OPTIONS, "augment": Augment.eval(40, 32), "output": "torch", "normalize": "imagenet"}

    def as_tensor(images: list[Any]) -> Any:
        return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)

    first = next(iter(Loader(Clips(3), **frames(3), **options)))
    second = next(iter(Loader(Clips(3, as_tensor), **frames(3), **options)))
    assert first[0].shape == (4, 3, 3, 32, 32) and torch.equal(first[0], second[0])


def test_a_tuple_of_a_clip_and_a_label_is_a_sample() -> None:
    class Pairs(Frame):
        def __getitem__(self, index: int) -> Any:
            return [pixels(index, 0), pixels(index, 1)], index

    for images, labels in Loader(Pairs(0), **frames(2), **OPTIONS):
        assert images.shape[:2] == (4, 2) and labels.dtype == np.int64


def test_cameras_and_a_mask_have_the_same_crops_and_flips() -> None:
    class Robot(Frame):
        def __getitem__(self, index: int) -> Any:
            gray = [np.repeat(pixels(index, frame)[:, :, :1], 3, 2) for frame in range(3)]
            return {"top.img": gray[:2], "wrist.img": gray[1:], "mask": gray[1][:, :, 0], "action": [0.5, index]}

    augment = Augment.center_crop(20).flip(0.5).vertical_flip(0.5)
    fields = {"image": Image("top.img", frames=2), "wrist": Image("wrist.img", frames=2), "mask": Mask("u8")}
    for batch in Loader(Robot(0), fields=fields, augment=augment, drop_field=["label"], **OPTIONS):
        assert np.array_equal(batch["image"][:, 1], batch["wrist"][:, 0])
        assert np.array_equal(batch["image"][:, 1, :, :, 0], batch["mask"])


def test_wrong_clips_are_rejected() -> None:
    def error(data: Any, count: int = 2) -> str:
        with pytest.raises(WarpfeedError) as raised:
            list(Loader(data, **frames(count), **{**OPTIONS, "shuffle": False}))
        return str(raised.value)

    assert "sample 0 (0): source: field \"image\" has 3 frames: expected 2" in error(Clips(3))
    assert "field \"image\" has 0 frames: expected 2" in error(Clips(0))
    single = error(Frame(0))
    assert "field \"image\": not a list of frames" in single and "expected a list of images" in single
    assert "frame 1 of field \"image\"" in error(Clips(2, lambda images: [encoded(images[0]), b"no image"]))
    assert "frame 1 of field \"image\" has 30x20 pixels, and frame 0 has 50x40" in error(
        Clips(2, lambda images: [images[0], images[1][:20, :30]])
    )
    assert "frame 1: int; expected the bytes" in error(Clips(2, lambda images: [images[0], 5]))
    with pytest.raises(WarpfeedError, match=r"is a clip, not a single image: use Image\(frames=2\)"):
        list(Loader(Clips(2), **OPTIONS))


def test_a_list_of_arrays_needs_the_name_of_an_image() -> None:
    stacked = lambda images: np.stack([images[0], images[0]])  # noqa: E731
    for as_list, kind in [(list, Image("clip", frames=2)), (list, Patches(source_field="clip", images=2)), (stacked, Image("clip", frames=2))]:
        options = {"fields": {"a": kind}, "drop_field": ["image", "label"], **OPTIONS}
        if isinstance(kind, Image):
            options["augment"] = Augment.resize(8, 8)
        with pytest.raises(WarpfeedError) as raised:
            list(Loader(Clips(2, as_list, "clip"), **options))
        advice = 'rename the field to "clip.jpg", and pass source_field="clip.jpg"'
        assert "no image \"clip\" among the fields" in str(raised.value) and advice in str(raised.value)
        renamed = {**options, "fields": {"a": replace(kind, source_field="clip.jpg")}}
        assert len(list(Loader(Clips(2, as_list, "clip.jpg"), **renamed))) == 2
        with pytest.raises(WarpfeedError) as raised:
            list(Loader(Clips(2, as_list, "movie"), **options))
        assert "rename the field" not in str(raised.value)

    class Masked(Clips):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return {**super().__getitem__(index), "mask": self.as_list([np.zeros((40 + index, 50), np.uint8)] * 2)}

    masked = {"fields": {**frames(2)["fields"], "mask": Mask("u8", frames=2)}, "augment": Augment.resize(8, 8), **OPTIONS}
    with pytest.raises(WarpfeedError, match=r"masks must be an array, not a list: .* return numpy.stack\(masks\)"):
        list(Loader(Masked(2), **masked))
    assert next(iter(Loader(Masked(2, np.stack), **masked)))["mask"].shape == (4, 2, 8, 8)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="frames=0: expected at least 1"):
        Image(frames=0)
    with pytest.raises(TypeError):
        Image(frames=1.5)  # type: ignore[arg-type]
    mixed = Augment.train(16).mix(Mix.mixup(0.2))
    with pytest.raises(ConfigError, match="clips cannot be mixed"):
        Loader(Clips(2), **frames(2), augment=mixed, soft_labels=(8, 0.0), **OPTIONS)


def test_collate_and_unpadded_know_the_axis_of_frames() -> None:
    seen = []
    for layout in ("nhwc", "nchw"):
        options = {**OPTIONS, "layout": layout, "augment": Augment.pad_to(64, 64)}
        trimmed = Loader(Clips(2), **frames(2), collate=lambda batch: collate.trim(batch, multiple=1), **options)
        for batch, (images, _) in zip(trimmed, Loader(Clips(2), **frames(2), **options), strict=True):
            height, width = max(40 + int(label) for label in batch["label"]), 50
            index = (..., slice(height), slice(width), slice(None)) if layout == "nhwc" else (
                ..., slice(height), slice(width))  # fmt: skip
            assert np.array_equal(batch["image"], images[index])
        pixel_values = next(iter(Loader(Clips(2), **frames(2), collate=collate.hf, **options)))["pixel_values"]
        seen.append(pixel_values)
        batch = next(iter(Loader(Clips(2), **frames(2), drop_field=["label"], **options)))
        label = next(iter(Loader(Clips(2), **frames(2), **options)))[1][0]
        first = batch.unpadded_images[0] if layout == "nhwc" else np.moveaxis(batch.unpadded_images[0], 1, -1)
        assert np.array_equal(first, np.stack([pixels(int(label), frame) for frame in range(2)]))
    assert seen[0].shape == (4, 2, 3, 64, 64) and np.array_equal(*seen)


def annotations(clip: int, frame: int) -> dict[str, Any]:
    boxes = [[1 + frame, 2, 12, 20 + clip], [5, 3, 30, 30]][: (clip + frame) % 3]
    return {
        "mask": pixels(clip, frame)[..., 0],
        "depth": pixels(clip, frame)[..., :2].astype(np.float32),
        "points": np.array([[4.5, 7 + frame], [20, 11 + clip]], np.float32),
        "boxes": boxes,
        "boxes.class": [frame + number for number in range(len(boxes))],
    }


def annotation_fields(count: int | None) -> dict[str, Any]:
    return {
        "mask": Mask("u8", fill=3, frames=count),
        "depth": DenseMap(2, frames=count),
        "points": Keypoints(2, flip_pairs=[(0, 1)], frames=count),
        "boxes": Boxes(4, columns={"class": "i64"}, frames=count),
    }


class Annotated(Clips):
    """Clips with annotations of each frame. ``as_masks`` converts the masks to a field's value."""

    def __init__(self, count: int, as_masks: Any) -> None:
        super().__init__(count)
        self.as_masks = as_masks

    def __getitem__(self, index: int) -> dict[str, Any]:
        frames = [annotations(index, frame) for frame in range(self.count)]
        fields = {name: [frame[name] for frame in frames] for name in frames[0]}
        stacked = {name: np.stack(fields[name]) for name in ("depth", "points")}
        return {**super().__getitem__(index), **fields, **stacked, "mask": self.as_masks(fields["mask"])}


class AnnotatedFrame(Frame):
    def __getitem__(self, index: int) -> Any:
        return {"image": pixels(index, self.frame), **annotations(index, self.frame), "label": index}


def encoded_npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("as_masks", [np.stack, lambda masks: [encoded_npy(mask) for mask in masks]])
@pytest.mark.parametrize("augment", [Augment.train(24), Augment.letterbox(24, 24).flip(0.5).rotate(15)])
def test_each_frame_has_the_annotations_of_the_frame_alone(as_masks: Any, augment: Augment) -> None:
    options = {**OPTIONS, "augment": augment}
    fields = {"image": Image(frames=3), **annotation_fields(3)}
    batches = list(Loader(Annotated(3, as_masks), fields=fields, num_workers=2, **options))
    assert batches[0]["mask"].shape == (4, 3, 24, 24) and batches[0]["boxes.count"].shape == (4, 3)
    for frame in range(3):
        singles = Loader(AnnotatedFrame(frame), fields=annotation_fields(None), **options)
        for found, alone in zip(batches, singles, strict=True):
            for name in ("mask", "depth", "points", "boxes", "boxes.count", "boxes.class"):
                assert np.array_equal(found[name][:, frame], alone[name]), (name, frame)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_trim_crops_the_annotations_of_clips_like_the_images(layout: str) -> None:
    class Outlined(Annotated):
        def __getitem__(self, index: int) -> dict[str, Any]:
            sample = super().__getitem__(index)
            outlines = [[[[x0, y0, x1, y0, x1, y1]] for x0, y0, x1, y1 in boxes] for boxes in sample["boxes"]]
            return {**sample, "boxes.masks": outlines}

    fields = {
        "image": Image(frames=2),
        **annotation_fields(2),
        "height": DenseMap(source_field="mask", frames=2),
        "boxes": Boxes(4, columns={"class": "i64"}, masks=True, frames=2),
    }
    options = {**OPTIONS, "layout": layout, "augment": Augment.pad_to(64, 64), "fields": fields}
    trimmed = Loader(Outlined(2, np.stack), collate=lambda batch: collate.trim(batch, multiple=1), **options)
    channels = (slice(None),) if layout == "nhwc" else ()
    for found, full in zip(trimmed, Loader(Outlined(2, np.stack), **options), strict=True):
        area = slice(max(40 + int(label) for label in full["label"])), slice(50)
        for name, index in {
            "image": (..., *area, *channels), "mask": (..., *area), "depth": (..., *area, *channels),
            "height": (..., *area), "boxes.masks": (..., *area),
        }.items():  # fmt: skip
            assert np.array_equal(found[name], full[name][index]), name
        assert full["boxes.masks"].any() and np.array_equal(found["boxes"], full["boxes"])


def test_annotations_must_have_a_value_for_each_frame() -> None:
    def load(frames: int | None, as_masks: Any = np.stack) -> None:
        fields = {"image": Image(frames=2), "mask": Mask("u8", frames=frames)}
        list(Loader(Annotated(2, as_masks), fields=fields, **{**OPTIONS, "augment": Augment.train(24)}))

    load(2)
    with pytest.raises(WarpfeedError, match="values for 3 frames: expected 2, one for each frame"):
        load(2, lambda masks: np.stack([*masks, masks[0]]))
    with pytest.raises(WarpfeedError, match="frame 1: field .*annotations are for 7x9 pixels"):
        load(2, lambda masks: [encoded_npy(masks[0]), encoded_npy(np.zeros((9, 7), np.uint8))])
    with pytest.raises(ConfigError, match=r"no image field has 3 frames .* Image\(frames=3\)"):
        load(3)
    for kind in (lambda: Mask("u8", frames=0), lambda: Boxes(2, frames=0), lambda: Keypoints(2, frames=0)):
        with pytest.raises(ConfigError, match="frames=0: expected at least 1"):
            kind()
    assert repr(DenseMap(frames=2)).endswith("frames=2)")
