"""Tests which values ``__getitem__`` of a Python dataset may return: images as bytes, paths,
arrays, tensors or Pillow images, alone, with a label, or in a dict with other fields. Any other
value must raise an error that names the sample and keeps the traceback."""

from __future__ import annotations

import io
import os
import resource
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from conftest import need
from warpfeed import Augment, Boxes, Loader, Mask, MultiHot, NdArray, NotFoundError, Ragged, StorageError, WarpfeedError

OPTIONS: dict[str, Any] = {"batch_size": 4, "augment": Augment.pass_through((8, 6)), "output": "numpy"}


def pixels(index: int) -> np.ndarray:
    return np.random.default_rng(index).integers(0, 256, (8, 6, 3), np.uint8)


EXPECTED = np.stack([pixels(i) for i in range(4)])


class Items:
    def __init__(self, give: Callable[[int], Any]) -> None:
        self.give = give

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.give(index)


def batch_of(give: Callable[[int], Any], **options: Any) -> Any:
    [batch] = Loader(Items(give), **{**OPTIONS, **options})
    return batch


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_arrays_of_any_memory_order_give_their_pixels() -> None:
    for give in [
        pixels,
        lambda i: np.asfortranarray(pixels(i)),
        lambda i: np.ascontiguousarray(pixels(i)[::-1])[::-1],
        lambda i: memoryview(pixels(i)),
        lambda i: npy(pixels(i)),
        lambda i: bytearray(npy(pixels(i))),
    ]:
        images, labels = batch_of(lambda i: (give(i), i))
        assert np.array_equal(images, EXPECTED) and labels.tolist() == [0, 1, 2, 3]


def test_a_gray_array_has_the_same_level_in_each_channel() -> None:
    for give in [lambda i: pixels(i)[:, :, 0], lambda i: pixels(i)[:, :, :1]]:
        images, _ = batch_of(lambda i: (give(i), i))
        assert np.array_equal(images, EXPECTED[..., :1].repeat(3, -1))


def test_a_path_is_read_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(4):
        (tmp_path / f"{i}.npy").write_bytes(npy(pixels(i)))
    monkeypatch.chdir(tmp_path)
    for give in [lambda i: tmp_path / f"{i}.npy", lambda i: f"{i}.npy", lambda i: os.fspath(tmp_path / f"{i}.npy")]:
        assert np.array_equal(batch_of(lambda i: (give(i), i))[0], EXPECTED)
        fields = {"emb": NdArray("f32", [2])}
        (tmp_path / "emb.npy").write_bytes(npy(np.array([1, 2], np.float32)))
        both = batch_of(lambda i: {"image": give(i), "label": i, "emb.npy": tmp_path / "emb.npy"}, fields=fields)
        assert np.array_equal(both["image"], EXPECTED) and both["emb"].tolist() == [[1, 2]] * 4


def test_an_unreadable_path_names_the_sample_and_the_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"sample 0\b.*nowhere.jpg") as missing:
        batch_of(lambda i: (tmp_path / "nowhere.jpg", i))
    assert missing.value.sample == 0 and missing.value.path == str(tmp_path / "nowhere.jpg")
    with pytest.raises(StorageError, match=r"sample 0\b.*a folder, not a regular file"):
        batch_of(lambda i: (tmp_path, i))
    # Reading from this pipe would block forever.
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match=r"sample 0\b.*not a regular file"):
        batch_of(lambda i: (tmp_path / "pipe", i))


def test_tensors_are_channels_first(torch: Any) -> None:
    def tensor(i: int) -> Any:
        return torch.from_numpy(pixels(i)).permute(2, 0, 1)

    for give in [tensor, lambda i: tensor(i).contiguous(), lambda i: tensor(i).clone().requires_grad_(False)]:
        images, labels = batch_of(lambda i: (give(i), torch.tensor(i)))
        assert np.array_equal(images, EXPECTED) and labels.tolist() == [0, 1, 2, 3]
    for gray in [lambda i: tensor(i)[:1], lambda i: tensor(i)[0]]:
        assert np.array_equal(batch_of(lambda i: (gray(i), i))[0], EXPECTED[..., :1].repeat(3, -1))
    fields = {"boxes": Boxes(2, {"class": "i64"}), "mask": Mask("u8")}
    batch = batch_of(
        lambda i: {
            "image": tensor(i), "label": i, "boxes": torch.tensor([[1.0, 2, 4, 5]]), "boxes.class": torch.tensor([i]),
            "mask": tensor(i)[0],
        },
        fields=fields,
    )  # fmt: skip
    assert batch["boxes"][:, 0].tolist() == [[1, 2, 4, 5]] * 4 and batch["boxes.class"][:, 0].tolist() == [0, 1, 2, 3]
    assert np.array_equal(batch["mask"], EXPECTED[..., 0])
    for invalid, message in [
        (lambda i: tensor(i).float() / 255, "tensor of type torch.float32; expected uint8.*ToTensor"),
        (lambda i: torch.from_numpy(pixels(i)), r"tensor of shape \(8, 6, 3\); expected \(3, height, width\)"),
        (lambda i: tensor(i)[None], r"is a clip, not a single image: use Image\(frames=1\)"),
    ]:
        with pytest.raises(WarpfeedError, match=rf"sample 0\b.*{message}"):
            batch_of(lambda i, invalid=invalid: (invalid(i), i))


def test_pillow_images_become_rgb(tmp_path: Path) -> None:
    image = need("PIL.Image")
    for i in range(4):
        image.fromarray(pixels(i)).save(tmp_path / f"{i}.png")
    for give in [lambda i: image.fromarray(pixels(i)), lambda i: image.open(tmp_path / f"{i}.png")]:
        assert np.array_equal(batch_of(lambda i: (give(i), i))[0], EXPECTED)
    for mode in ("L", "P", "RGBA", "1", "CMYK", "LA"):
        converted = [image.fromarray(pixels(i)).convert(mode) for i in range(4)]
        want = np.stack([np.asarray(one.convert("RGB")) for one in converted])
        assert np.array_equal(batch_of(lambda i: (converted[i], i))[0], want), mode
    for mode in ("RGBA", "LA", "P"):
        clear = image.fromarray(pixels(0)).convert("RGBA")
        clear.putalpha(image.fromarray(pixels(1)[..., 0]))
        clear = clear.quantize(16) if mode == "P" else clear.convert(mode)
        want = image.new("RGB", clear.size, (255, 40, 0))
        want.paste(clear.convert("RGBA"), mask=clear.convert("RGBA").getchannel("A"))
        result = batch_of(lambda i, clear=clear: (clear, i), background=(255, 40, 0))[0][0]
        assert np.array_equal(result, np.asarray(want)), mode
        assert not np.array_equal(result, np.asarray(clear.convert("RGB"))), mode
    # For masks, palette indices are the class indices.
    classes = image.fromarray(pixels(0)[..., 0] % 4, "P")
    batch = batch_of(lambda i: {"image": pixels(i), "label": i, "mask": classes}, fields={"mask": Mask("u8")})
    assert np.array_equal(batch["mask"][2], pixels(0)[..., 0] % 4)
    with pytest.raises(WarpfeedError, match=r"sample 0\b.*unsupported Pillow mode 'F'"):
        batch_of(lambda i: (image.fromarray(pixels(i)[..., 0].astype(np.float32)), i))


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_exif_rotates_a_pillow_image_like_its_file(form: str) -> None:
    image = need("PIL.Image")
    ops = need("PIL.ImageOps")
    options = {"augment": Augment.pass_through((6, 8))}

    def file(index: int, orientation: int) -> bytes:
        exif, out = image.Exif(), io.BytesIO()
        exif[0x0112] = orientation
        image.fromarray(pixels(index)).save(out, form, exif=exif, **({"lossless": True} if form == "WEBP" else {}))
        return out.getvalue()

    def opened(index: int, orientation: int) -> Any:
        return image.open(io.BytesIO(file(index, orientation)))

    for orientation in (5, 6, 7, 8):
        want = batch_of(lambda i, o=orientation: (file(i, o), i), **options)[0]
        upright = [np.asarray(ops.exif_transpose(opened(i, orientation))) for i in range(4)]
        assert np.array_equal(want, upright)
        for give in (
            opened,
            # Like torchvision's `ImageFolder`.
            lambda i, o: opened(i, o).convert("RGB"),
            # `exif_transpose` rotates the image and removes its orientation tag.
            lambda i, o: ops.exif_transpose(opened(i, o)),
        ):
            assert np.array_equal(batch_of(lambda i, o=orientation, g=give: (g(i, o), i), **options)[0], want)
    # If it is unknown whether annotations refer to the stored or to the rotated image, the sample
    # fails, for Pillow images as for encoded bytes.
    boxes = np.array([[1, 1, 3, 3]], "f4")
    fields: dict[str, Any] = {"fields": {"boxes": Boxes(1)}, "drop_field": ["label"]}
    for give in (file, opened):
        sample = lambda i, give=give: {"image": give(i, 3), "boxes": boxes}  # noqa: E731
        with pytest.raises(WarpfeedError, match="annotations_follow"):
            batch_of(sample, **fields)


def test_strings_are_fields_and_labels_may_be_missing() -> None:
    give = lambda i: {"image": pixels(i), "label": None, "caption": "a" * i}  # noqa: E731
    batch = batch_of(give, fields={"caption": Ragged.bytes(4)}, unlabeled=True)
    assert batch["caption.count"].tolist() == [0, 1, 2, 3] and batch["label"].tolist() == [-1] * 4
    assert bytes(batch["caption"][3]) == b"aaa\0"


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda i: (pixels(i), 1.5), "TypeError: the label is 1.5; expected a class index or None"),
        (lambda i: {"image": pixels(i), "label": "cat"}, "TypeError: the label is 'cat'; expected a class index"),
        (lambda i: (pixels(i), 1 << 70), "TypeError: the label is 1180591620717411303424; expected"),
        (lambda i: None, "__getitem__ returned NoneType; expected the bytes .* a path, a uint8 tensor"),
        (lambda i: {"image": None, "label": 0}, "field 'image': NoneType; expected the bytes"),
        (lambda i: [pixels(i), 0], "__getitem__ returned list"),
        (lambda i: (pixels(i).astype(np.float32), 0), "type float32 .*: expected uint8 and"),
        (lambda i: {1: pixels(i)}, "TypeError: "),
        (lambda i: {}, "no image among the fields"),
        (lambda i: (b"", 0), r"the image is empty \(0 bytes\)"),
        (lambda i: (pixels(i)[:0], 0), "0 pixels"),
    ],
)
def test_an_invalid_sample_fails_with_its_name(give: Callable[[int], Any], message: str) -> None:
    with pytest.raises(WarpfeedError, match=rf"sample 0\b.*{message}"):
        batch_of(give)


def fails(index: int) -> Any:
    if index == 2:
        raise KeyError("the third is missing")
    return pixels(index), index


def test_an_exception_names_the_sample_and_keeps_its_traceback() -> None:
    with pytest.raises(WarpfeedError, match=r"sample 2\b.*KeyError: 'the third is missing'") as e:
        batch_of(fails)
    cause = e.value.__cause__
    assert isinstance(cause, KeyError) and e.value.sample == 2
    names = []
    trace = cause.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert names[-1] == "fails"
    loader = Loader(Items(fails), max_skipped=1, **OPTIONS)
    [batch] = loader
    assert batch.valid.tolist() == [True, True, False, True] and len(loader.sample_errors()) == 1


def test_negative_and_out_of_range_indices_are_refused() -> None:
    seen: list[int] = []

    def give(index: int) -> Any:
        seen.append(index)
        return pixels(index), index

    batch_of(give)
    assert sorted(set(seen)) == [0, 1, 2, 3]
    for subset in ([-1], [4], [0, 99]):
        with pytest.raises((WarpfeedError, OverflowError, ValueError), match="-1|4|99"):
            Loader(Items(give), subset=subset, **OPTIONS)
    for order in (lambda epoch: [-1, 0, 1, 2], lambda epoch: [0, 1, 2, 4]):
        with pytest.raises((WarpfeedError, OverflowError, ValueError), match="-1|4"):
            list(Loader(Items(give), sampler=order, **OPTIONS))
    assert min(seen) == 0 and max(seen) == 3


def test_an_invalid_length_is_rejected() -> None:
    class Sized(Items):
        def __init__(self, length: Any) -> None:
            super().__init__(lambda i: (pixels(i), i))
            self.length = length

        def __len__(self) -> int:
            return self.length  # type: ignore[no-any-return]

    with pytest.raises(WarpfeedError, match="no samples"):
        Loader(Sized(0), **OPTIONS)
    with pytest.raises(ValueError, match="should return >= 0"):
        Loader(Sized(-1), **OPTIONS)
    with pytest.raises(TypeError, match="interpreted as an integer"):
        Loader(Sized("4"), **OPTIONS)
    short = Items([(pixels(0), 0), (pixels(1), 1), (pixels(2), 2)].__getitem__)
    with pytest.raises(WarpfeedError, match=r"sample 3\b.*IndexError"):
        list(Loader(short, **OPTIONS))


def test_a_file_above_max_sample_bytes_is_never_read(tmp_path: Path) -> None:
    small, large = tmp_path / "small.bin", tmp_path / "large.bin"
    small.write_bytes(b"1" * 60)
    with open(large, "wb") as file:
        # The file is sparse. Reading it would take a gigabyte of memory.
        file.truncate(1 << 30)
    fields = {"a": Ragged.bytes(60), "b": Ragged.bytes(60)}
    options: dict[str, Any] = {**OPTIONS, "augment": None, "drop_field": ["image", "label"], "fields": fields, "max_sample_bytes": 130}
    [batch] = Loader(Items(lambda index: {"a": small, "b": small}), **options)
    assert batch["a"].shape == (4, 60)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limit = r"large.bin.* at least 1073741\d+ bytes, but max_sample_bytes is 130"
    with pytest.raises(WarpfeedError, match=limit):
        list(Loader(Items(lambda index: {"a": small, "b": large}), **options))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_fields_may_be_numbers_and_lists() -> None:
    def give(i: int) -> dict[str, Any]:
        tags = ["cat", "dog"][: i % 3]
        return {
            "image": pixels(i), "age": i, "share": i / 3, "flag": i > 1, "scalar": np.float64(i), "row": [i, 0.5],
            "table": [[i, 1], (2, np.int64(3))], "tags": tags, "points": [[i, i]] * i, "meta.json": {"n": i},
            "gap": [float("nan"), 1],
        }  # fmt: skip

    fields = {
        "age": NdArray("i64"), "share": NdArray("f32"), "flag": NdArray("u8"), "scalar": NdArray("f32"),
        "row": NdArray("f32", [2]), "table": NdArray("i32", [2, 2]), "tags": MultiHot(["cat", "dog"]),
        "points": Ragged("f32", [2], 4), "gap": NdArray("f32", [2]),
    }  # fmt: skip
    batch = batch_of(give, fields=fields, drop_field=["label"])
    assert batch["age"].tolist() == [0, 1, 2, 3] and batch["flag"].tolist() == [0, 0, 1, 1]
    assert (batch["share"] == np.float32(np.arange(4) / 3)).all() and batch["scalar"].tolist() == [0, 1, 2, 3]
    assert batch["row"].tolist() == [[i, 0.5] for i in range(4)]
    assert batch["table"].tolist() == [[[i, 1], [2, 3]] for i in range(4)]
    assert batch["tags"].tolist() == [[0, 0], [1, 0], [1, 1], [0, 0]]
    assert batch["points.count"].tolist() == [0, 1, 2, 3]
    assert np.isnan(batch["gap"][:, 0]).all() and (batch["gap"][:, 1] == 1).all()
    stored = Loader(Items(give), **OPTIONS).sample(2)
    assert (stored["age.json"], stored["row.json"], stored["meta.json"]) == (2, [2, 0.5], {"n": 2})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": 1j}, "field 'x': complex; expected a number, a list of numbers, an array, bytes, a string or a path"),
        ({"x": None}, "field 'x': NoneType; expected a number"),
        ({"x": [object()]}, "field 'x': cannot convert object inside list; expected numbers"),
        ({"x.npy": [1, 2]}, "field 'x.npy': the suffix of its name declares an encoding, but its value is not bytes; rename the field to 'x'"),
        ({"image": 3}, "field 'image': int; expected the bytes of an encoded image"),
        ({"jpg": [[0]]}, "field 'jpg': list; expected the bytes of an encoded image"),
        ({3: b""}, "__getitem__ returned a dict with a key of type int; expected str keys"),
    ],
)
def test_a_field_of_a_wrong_type_fails_with_its_key(fields: dict[Any, Any], message: str) -> None:
    with pytest.raises(WarpfeedError, match=message):
        batch_of(lambda i: {"image": pixels(i), "label": i, **fields}, fields={"y": NdArray("f32")})
