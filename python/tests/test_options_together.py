"""Promise: an option that would have no effect next to another one is an error when the loader opens. Every
pair of options is opened once: each of the two changes something that a program sees, or the pair is refused."""

from __future__ import annotations

import inspect
import itertools
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warpfeed import Augment, Buckets, ConfigError, Loader, Numbers, Rows, Tokens

COUNT = 11


def png(index: int) -> bytes:
    """A picture of 4 x 4 pixels, half of them transparent."""
    pixels = np.random.default_rng(index).integers(0, 256, (4, 4, 4), np.uint8)
    pixels[:2, :, 3], pixels[2:, :, 3] = 0, 255
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 4, 4, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Samples:
    classes = ["even", "odd"]

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"png": png(index), "label": index % 2, "emb": np.float32(index)}


def darker(image: Any, rng: Any) -> Any:
    return image // 2


def on_batches(*given: Any) -> Any:
    if isinstance(given[0], dict):
        return {**given[0], "more": np.ones(1)}
    images, labels = given
    return images, np.from_dlpack(labels) + 100


def collated(batch: Any) -> Any:
    return {**batch, "collated": np.ones(1)}


#: Options that change what a program sees of this data set, with a value that does. A name may have a variant.
ACTING: dict[str, dict[str, Any]] = {
    "batch_size": {"batch_size": 3},
    "global_batch_size": {"global_batch_size": 6},
    "shuffle": {"shuffle": True},
    "augment": {"augment": Augment.resize(6)},
    "views": {"views": [Augment.resize(5), Augment.resize(7)]},
    "dtype": {"dtype": "f16"},
    "normalize": {"normalize": "imagenet"},
    "channels": {"channels": 1},
    "background": {"background": (9, 99, 199)},
    "layout": {"layout": "nchw"},
    "output": {"output": "dlpack"},
    "transform": {"transform": darker, "processes": 0},
    "transforms": {"transforms": [on_batches]},
    "collate": {"collate": collated},
    "drop_last": {"drop_last": True},
    "last_batch": {"last_batch": "pad"},
    "seed": {"seed": 5},
    "shuffle_window": {"shuffle_window": 3},
    "subset": {"subset": [7, 3, 5, 1, 8, 2, 10]},
    "buckets": {"buckets": Buckets([3 * id % 10 for id in range(COUNT)], [4])},
    "weights": {"weights": [float(id % 3) for id in range(COUNT)]},
    "balanced": {"balanced": True},
    "order": {"order": lambda epoch: [5, 5, 2, 8, 3, 1, 7]},
    "repeat": {"repeat": 2},
    "classes": {"classes": ["odd", "even"]},
    "classes_file": {},
    "fields": {"fields": {"emb": Numbers("f32")}},
    "without": {"without": ["label"]},
    "without image": {"without": ["image"]},
    "soft_labels": {"soft_labels": (2, 0.1)},
    "rank": {"rank": 1, "world_size": 2},
    "num_workers": {"num_workers": 2},
    "prefetch": {"prefetch": 2},
}

#: Options that change nothing that the batches of this data set show, with the reason.
OTHERS = {
    "machine": ["device", "processes", "copy", "decode_on", "decode_share", "pin_memory", "mmap", "epochs", "trace"],
    "limits and errors": [
        "max_skipped", "strict", "retries", "timeout", "memory_limit", "max_pixels", "max_sample_bytes", "to_8_bits",
    ],
    "other kinds of data sets": [
        "table", "masks", "index", "cache_dir", "cache_bytes", "cache_refresh", "by_class_name", "keep_labels", "annotations_follow", "unlabelled",
    ],
    "says what another option does": ["transform_moves_pixels"],
    "ranks and runs": ["world_size", "distributed", "resume"],
}  # fmt: skip

#: Pairs of which one says the same as the other, and that programs write together.
AGREE = {("shuffle", "shuffle_window")}


def opened(names: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a loader with the options of these names."""
    options: dict[str, Any] = {"batch_size": 4, "output": "numpy", "num_workers": 1, "prefetch": 1}
    if not {"views", "without image"} & set(names):
        options["augment"] = Augment.resize(8)
    if "global_batch_size" in names:
        del options["batch_size"]
    for name in names:
        for option, value in ACTING[name].items():
            if option == "without" and option in options:
                value = [*options[option], *value]
            options[option] = value
    if "batch_size" in names:
        options["batch_size"] = 3
    return options


def seen(names: tuple[str, ...]) -> list[Any]:
    """All that a program sees of two epochs.

    Raises:
        ConfigError: if the options are refused.
    """
    with Loader(Samples(), **opened(names)) as loader:
        said: list[Any] = [
            len(loader), loader.dataset.indices, loader.classes, loader.state_dict()["seed"], loader.num_workers, loader.prefetch,
            loader.rank, loader.world_size, loader.batch_size,
        ]  # fmt: skip
        for batch in itertools.chain(loader, loader):
            said.append(type(batch).__name__)
            fields = batch.items() if isinstance(batch, dict) else zip(("image", "label"), batch, strict=True)
            for name, field in fields:
                for array in field if isinstance(field, list) else [field]:
                    kept = np.from_dlpack(array) if not isinstance(array, np.ndarray) else array
                    said += [name, type(array).__name__, kept.dtype, kept.shape, kept.strides, kept.tobytes()]
            if hasattr(batch, "ids"):
                said += [batch.ids, np.asarray(batch.valid).tolist()]
    return said


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    names = tmp_path_factory.mktemp("classes") / "names.txt"
    names.write_text("odd\neven\n")
    ACTING["classes_file"] = {"classes_file": names}
    return {name: seen((name,)) for name in ACTING}


def test_the_tables_have_every_option() -> None:
    known = {name.partition(" ")[0] for name in ACTING} | {name for names in OTHERS.values() for name in names}
    parameters = inspect.signature(Loader.__init__).parameters.values()
    assert {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY} == known


def test_every_option_acts_alone(alone: dict[str, list[Any]]) -> None:
    plain = seen(())
    images = seen(("without image",))
    assert [name for name, found in alone.items() if found == (images if name == "without" else plain)] == []


@pytest.mark.parametrize("one", ACTING)
def test_each_of_two_options_acts_or_the_pair_is_refused(one: str, alone: dict[str, list[Any]]) -> None:
    silent, refused = [], 0
    for other in list(ACTING)[list(ACTING).index(one) + 1 :]:
        try:
            both = seen((one, other))
        except ConfigError:
            refused += 1
            continue
        if (one, other) in AGREE or (other, one) in AGREE:
            continue
        silent += [f"{one} next to {other}"] * (both == alone[other]) + [f"{other} next to {one}"] * (
            both == alone[one]
        )
    assert silent == []


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"without": ["label"], "soft_labels": (2, 0.1)}, "soft_labels"),
        ({"without": ["label"], "unlabelled": True}, "unlabelled"),
        *[
            ({"without": ["image"], name: value}, name)
            for name, value in [
                ("augment", Augment.resize(8)), ("normalize", "imagenet"), ("dtype", "f32"), ("transform", darker),
                ("channels", 1), ("layout", "nchw"), ("background", (1, 2, 3)), ("to_8_bits", True),
            ]
        ],
        ({"weights": [1.0] * COUNT, "shuffle": True}, "shuffle"),
        ({"balanced": True, "shuffle": 3}, "shuffle"),
        ({"processes": 0}, "processes"),
        ({"transform_moves_pixels": False}, "transform_moves_pixels"),
        ({"by_class_name": True}, "by_class_name"),
        ({"keep_labels": True}, "keep_labels"),
        ({"cache_dir": "x"}, "cache_dir"),
    ],
)  # fmt: skip
def test_an_option_without_effect_is_refused_by_name(options: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        Loader(Samples(), output="numpy", **options)


def test_tokens_have_no_pictures_and_no_labels(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(bytes(400))
    data = Tokens(tmp_path / "tokens.bin", 8)
    Loader(data, output="numpy").close()
    for options in (
        {"augment": Augment.resize(8)}, {"normalize": "imagenet"}, {"dtype": "f32"}, {"transform": darker}, {"soft_labels": (2, 0.1)},
        {"layout": "nchw"}, {"unlabelled": True},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"{next(iter(options))} changes .*, and the loader (has|reads) none"):
            Loader(data, output="numpy", **options)


def test_pictures_that_a_field_shows_are_augmented() -> None:
    rows = {"rows": Rows("u8", (), 4)}
    with pytest.raises(ConfigError, match="^augment changes pictures, and the loader reads none"):
        Loader(Samples(), without="image", fields=rows, augment=Augment.resize(8))
