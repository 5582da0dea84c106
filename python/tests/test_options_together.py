"""Opens a loader with every pair of options that have a visible effect on this dataset: either both
effects are visible, or the pair is rejected with an error that names one of the options. `ALONE`
lists the exceptions. The options in `QUIET` change none of these effects, or are rejected by
name."""

from __future__ import annotations

import inspect
import struct
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pytest
from conftest import tell
from warpfeed import Augment, Buckets, ConfigError, Loader, NdArray, Ragged, Tokens, WarpfeedError

COUNT = 11


def png(index: int) -> bytes:
    """Returns a 4x4 image with a transparent half."""
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
        return {"png": png(index), "label": label(index), "emb": np.float32(index)}


def label(index: int) -> int:
    """Returns the label of a sample. Only a few labels are odd, so that balanced draws can be
    recognized."""
    return int(index in (3, 8))


def darker(image: Any, rng: Any) -> Any:
    return image // 2


def on_batches(*fields: Any) -> Any:
    if isinstance(fields[0], dict):
        return {**fields[0], "more": np.ones(1)}
    images, labels = fields
    return images, np.from_dlpack(labels) + 100


def collated(batch: Any) -> Any:
    return {**batch, "collated": np.ones(1), "ids": batch.ids, "valid": np.asarray(batch.valid)}


SUBSET = [7, 3, 5, 1, 8, 2, 10]
ORDER = [5, 5, 2, 8, 3, 1, 7]
LENGTHS = [3 * id % 10 for id in range(COUNT)]

#: Options with a visible effect on this dataset. A name may be followed by a variant.
ACTING: dict[str, dict[str, Any]] = {
    "batch_size": {"batch_size": 3},
    "global_batch_size": {"global_batch_size": 6},
    "shuffle": {"shuffle": True},
    "augment": {"augment": Augment.resize(6).flip(0.5)},
    "views": {"views": [Augment.resize(5).flip(0.5), Augment.resize(7).flip(0.5)]},
    "dtype": {"dtype": "f16"},
    "normalize": {"normalize": "imagenet"},
    "channels": {"channels": 1},
    "background": {"background": (9, 99, 199)},
    "layout": {"layout": "nchw"},
    "output": {"output": "dlpack"},
    "image_transform": {"image_transform": darker, "image_transform_processes": 0},
    "batch_transform": {"batch_transform": [on_batches]},
    "collate": {"collate": collated},
    "drop_last": {"drop_last": True},
    "last_batch": {"last_batch": "pad"},
    "seed": {"seed": 5},
    "shuffle_window": {"shuffle_window": 3},
    "subset": {"subset": SUBSET},
    "buckets": {"buckets": Buckets(LENGTHS, [4])},
    "weights": {"weights": [float(id % 3) for id in range(COUNT)]},
    "balanced": {"balanced": True},
    "sampler": {"sampler": lambda epoch: ORDER},
    "repeat": {"repeat": 2},
    "classes": {"classes": ["odd", "even"]},
    "classes_file": {},
    "fields": {"fields": {"emb": NdArray("f32")}},
    "drop_field": {"drop_field": ["label"]},
    "drop_field image": {"drop_field": ["image"]},
    "soft_labels": {"soft_labels": (2, 0.1)},
    "rank": {"rank": 1, "world_size": 2},
    "num_workers": {"num_workers": 2},
    "prefetch": {"prefetch": 2},
}

#: Options without a visible effect on this dataset, each with a value other than the default.
QUIET: dict[str, dict[str, Any]] = {
    "device": {"device": "cpu"},
    "copy": {"copy": True},
    "decode_on": {"decode_on": "auto"},
    "decode_share": {"decode_share": 0.5},
    "mmap": {"mmap": False},
    "cache_decoded": {"cache_decoded": 1 << 20},
    "cache_format": {"cache_format": "coefficients", "cache_decoded": 1 << 20},
    "epochs": {"epochs": 2},
    "strict": {"strict": True},
    "retries": {"retries": 1},
    "held_batches_timeout": {"held_batches_timeout": 20},
    "max_skipped": {"max_skipped": 2},
    "convert_to_u8": {"convert_to_u8": True},
    "distributed": {"distributed": False},
}

#: Options that are rejected for this dataset, with the error message.
LIMITS: dict[str, tuple[dict[str, Any], str]] = {
    "memory_limit": ({"memory_limit": 1}, "memory_limit"),
    "max_pixels": ({"max_pixels": 15}, "the limit is 15"),
    "max_sample_bytes": ({"max_sample_bytes": 8}, "max_sample_bytes is 8"),
}

#: Options whose combinations are tested elsewhere, with the reason.
OTHERS = {
    "needs a device": ["pin_memory"],
    "are opened below": ["image_transform_processes", "image_transform_moves_pixels", "match_labels_by_name", "keep_labels", "cache_dir", "unlabeled"],
    "other kinds of datasets": ["table", "masks", "cache_listing", "cache_bytes", "cache_refresh", "annotations_follow"],
    "files and runs": ["trace", "resume", "world_size"],
}  # fmt: skip


class Run:
    """A record of everything that a program can observe in two epochs."""

    def __init__(self, names: tuple[str, ...], extra: dict[str, Any] | None = None) -> None:
        """Opens a loader with the options that have these names."""
        self.names = names
        self.epochs: list[list[dict[str, Any]]] = [[], []]
        with Loader(Samples(), **opened(names), **(extra or {})) as loader:
            self.facts = [
                len(loader), list(loader.dataset.indices), loader.classes, loader.state_dict()["seed"], loader.num_workers,
                loader.prefetch, loader.rank, loader.world_size, loader.batch_size,
            ]  # fmt: skip
            self.indices = self.facts[1]
            for batches in self.epochs:
                for batch in loader:
                    batches.append(self.kept(batch))
        self.batches = [batch for batches in self.epochs for batch in batches]

    @staticmethod
    def kept(batch: Any) -> dict[str, Any]:
        fields = dict(batch) if isinstance(batch, dict) else dict(zip(("image", "label"), batch, strict=True))
        ids, valid = (
            fields.pop(name, None) if "collated" in fields else getattr(batch, name) for name in ("ids", "valid")
        )
        retained: dict[str, Any] = {
            "type": type(batch).__name__, "arrays": {}, "ids": list(ids), "valid": np.asarray(valid).tolist()
        }  # fmt: skip
        for name, field in fields.items():
            listed = field if isinstance(field, list) else [field]
            retained["arrays"][name] = [
                (
                    type(one).__name__,
                    np.array(one if isinstance(one, np.ndarray) else np.from_dlpack(one)),
                    strides_of(one),
                )
                for one in listed
            ]
        return retained

    def shown(self) -> list[Any]:
        """Returns the observations by which two runs are compared."""
        observed = [*self.facts]
        for batch in self.batches:
            for name, listed in batch["arrays"].items():
                observed += [
                    (name, kind, array.dtype, array.shape, strides, array.tobytes()) for kind, array, strides in listed
                ]
            observed += [batch["type"], batch["ids"], batch["valid"]]
        return observed

    def sizes(self, epoch: int) -> list[int]:
        return [len(batch["ids"]) for batch in self.epochs[epoch]]

    def ids(self, epoch: int | None = None) -> list[int]:
        """Returns the sample indices of the batches, without padding."""
        batches = self.batches if epoch is None else self.epochs[epoch]
        return [id for batch in batches for id, valid in zip(batch["ids"], batch["valid"], strict=True) if valid]

    def field(self, name: str) -> list[np.ndarray]:
        return [array for batch in self.batches for _, array, _ in batch["arrays"].get(name, [])]

    def labels(self) -> list[tuple[int, int]]:
        """Returns each label with its sample. `on_batches` adds 100 to labels."""
        pairs = zip(self.batches, self.field("label"), strict=True) if self.field("label") else []
        return [(int(one) % 100, id) for batch, result in pairs for one, id in zip(result, batch["ids"], strict=True)]

    def images(self) -> list[np.ndarray]:
        """Returns the images, or all views, as (N, H, W, C)."""
        results = [*self.field("image"), *self.field("views")]
        return [array.transpose(0, 2, 3, 1) if array.shape[1] in (1, 3) else array for array in results]

    def brightest(self) -> float:
        """Returns the largest value of an image, on a scale from 0 to 1."""
        largest = max(float(array.max()) for array in self.images())
        return largest / 255 if self.images()[0].dtype == np.uint8 else largest


def strides_of(one: Any) -> tuple[int, ...]:
    return tuple((one if isinstance(one, np.ndarray) else np.from_dlpack(one)).strides)


def sides(run: Run) -> set[int]:
    return {array.shape[1] for array in run.images()}


def mixed(run: Run, epoch: int) -> int:
    """Returns the number of batches with both short and long samples."""
    entries = [zip(batch["ids"], batch["valid"], strict=True) for batch in run.epochs[epoch]]
    return sum(len({LENGTHS[id] > 4 for id, valid in batch if valid}) == 2 for batch in entries)


def behind(image: np.ndarray) -> bool:
    """Returns whether the first row of an image, which is transparent, has a single color."""
    return bool(np.ptp(image[0].astype(np.float64), axis=0).max() <= 1e-3)


#: Whether the effect of an option is visible in a run, compared with a run without the option.
EFFECTS: dict[str, Callable[[Run, Run], bool]] = {
    "batch_size": lambda run, _: run.sizes(0)[0] == 3,
    "global_batch_size": lambda run, _: run.sizes(0)[0] == (3 if "rank" in run.names else 6),
    "shuffle": lambda run, _: run.ids(0) != run.ids(1) != sorted(run.ids(1)),
    "augment": lambda run, _: sides(run) == {6},
    "views": lambda run, _: sides(run) == {5, 7} and len(run.field("views")) == 2 * len(run.batches),
    "dtype": lambda run, _: {array.dtype for array in run.images()} == {np.dtype("f2")},
    "normalize": lambda run, _: all(array.dtype.kind == "f" and array.min() < -1 for array in run.images()),
    "channels": lambda run, _: {array.shape[-1] for array in run.images()} == {1},
    "background": lambda run, _: all(behind(image) for array in run.images() for image in array),
    "layout": lambda run, _: all(array.shape[1] in (1, 3) for array in [*run.field("image"), *run.field("views")]),
    # `on_batches` replaces the labels.
    "output": lambda run, _: all("Tensor" in {kind for listed in batch["arrays"].values() for kind, *_ in listed} for batch in run.batches),
    "image_transform": lambda run, other: run.brightest() < (0.5 if "normalize" in run.names else 128 / 255) < other.brightest(),
    "batch_transform": lambda run, _: all(
        "more" in batch["arrays"] or batch["arrays"]["label"][0][1].min() >= 100 for batch in run.batches
    ),
    "collate": lambda run, _: all("collated" in batch["arrays"] for batch in run.batches),
    "drop_last": lambda run, other: set(run.sizes(0)) == {run.sizes(0)[0]} and len(run.ids(0)) <= len(other.ids(0)),
    "last_batch": lambda run, _: set(run.sizes(0)) == {run.sizes(0)[0]} and not all(run.batches[-1]["valid"]),
    "seed": lambda run, other: run.facts[3] == 5 and [a.tobytes() for a in run.images()] != [a.tobytes() for a in other.images()],
    "shuffle_window": lambda run, _: run.ids(0) != run.ids(1) != sorted(run.ids(1)),
    "subset": lambda run, _: set(run.ids()) <= set(SUBSET) and sorted(run.indices) == sorted(SUBSET),
    "buckets": lambda run, _: mixed(run, 0) <= 1 and mixed(run, 1) <= 1,
    "weights": lambda run, _: all(id % 3 for id in run.ids()),
    "balanced": lambda run, _: sum(label(id) for id in run.ids()) >= 0.3 * len(run.ids()) and max(Counter(run.ids(0)).values()) > 1,
    "sampler": lambda run, _: set(run.ids()) <= set(ORDER) and run.ids(0) != sorted(run.ids(0)),
    "repeat": lambda run, other: len(run.ids(0)) >= 1.5 * len(other.ids(0)),
    "classes": lambda run, _: run.facts[2] == ["odd", "even"] and all(k == 1 - label(id) for k, id in run.labels()),
    "classes_file": lambda run, _: (
        run.facts[2] == ["odd", "even"] and all(k == 1 - label(id) for k, id in run.labels())
    ),
    "fields": lambda run, _: all(
        batch["arrays"]["emb"][0][1].tolist() == batch["ids"] for batch in run.batches if "emb" in batch["arrays"]
    ) and bool(run.field("emb")),
    "drop_field": lambda run, _: not run.field("label"),
    "drop_field image": lambda run, _: not run.field("image"),
    "soft_labels": lambda run, _: {array.shape[1] for array in run.field("soft_label")} == {2},
    "rank": lambda run, other: run.facts[6:8] == [1, 2] and len(run.ids(0)) <= 0.6 * len(other.ids(0)),
    "num_workers": lambda run, _: run.facts[4] == 2,
    "prefetch": lambda run, _: run.facts[5] == 2,
}  # fmt: skip

#: Pairs that can be opened although one of the options has no effect, with the reason.
ALONE = {
    ("shuffle", "shuffle_window"): "both options shuffle, and programs set them together",
    ("drop_field image", "seed"): "nothing is drawn, but the state contains the seed",
    ("seed", "drop_field image"): "nothing is drawn, but the state contains the seed",
}


def opened(names: tuple[str, ...]) -> dict[str, Any]:
    """Returns the arguments of a loader with the options that have these names."""
    options: dict[str, Any] = {"batch_size": 4, "output": "numpy", "num_workers": 1, "prefetch": 1}
    if not {"views", "drop_field image"} & set(names):
        options["augment"] = Augment.resize(8).flip(0.5)
    if "global_batch_size" in names:
        del options["batch_size"]
    for name in names:
        for option, value in ACTING[name].items():
            if option == "drop_field" and option in options:
                value = [*options[option], *value]
            options[option] = value
    if "batch_size" in names:
        options["batch_size"] = 3
    return options


COVERED: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def covered() -> Iterator[None]:
    yield
    tell(f"options: {', '.join(f'{count} {what}' for what, count in COVERED.items())}")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    names = tmp_path_factory.mktemp("classes") / "names.txt"
    names.write_text("odd\neven\n")
    ACTING["classes_file"] = {"classes_file": names}
    return {"": Run(()), **{name: Run((name,)) for name in ACTING}}


def test_the_tables_have_every_option() -> None:
    acting = {name.partition(" ")[0] for name in ACTING}
    known = acting | {*QUIET, *LIMITS} | {name for names in OTHERS.values() for name in names}
    parameters = inspect.signature(Loader.__init__).parameters.values()
    assert {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY} == known
    assert list(EFFECTS) == list(ACTING)


def test_each_effect_needs_its_option(alone: dict[str, Run]) -> None:
    for name, shows in EFFECTS.items():
        assert shows(alone[name], alone[""]), f"{name} has no visible effect"
        # If the effect were visible without the option, the tests of pairs could not detect a
        # missing effect.
        assert not shows(alone[""], alone[""]), f"the effect of {name} is visible without it"


@pytest.mark.parametrize("one", ACTING)
def test_each_of_two_options_acts_or_the_pair_is_refused(one: str, alone: dict[str, Run]) -> None:
    silent = []
    for other in list(ACTING)[list(ACTING).index(one) + 1 :]:
        try:
            both = Run((one, other))
        except ConfigError as e:
            COVERED["pairs are refused"] += 1
            if not any(name.partition(" ")[0] in str(e) for name in (one, other)):
                silent.append(f"the error of {one} and {other} names neither: {e}")
            continue
        COVERED["pairs act"] += 1
        if (one, other) in ALONE:
            continue
        for name, rest in ((one, other), (other, one)):
            if both.shown() == alone[rest].shown():
                silent.append(f"{name} changes nothing together with {rest}")
            elif not EFFECTS[name](both, alone[rest]):
                silent.append(f"{name} has no visible effect together with {rest}")
    assert silent == [], "\n".join(silent)


@pytest.mark.parametrize("quiet", QUIET)
def test_machine_options_do_not_change_other_options(quiet: str, alone: dict[str, Run]) -> None:
    changed = []
    for other, expected in alone.items():
        try:
            actual = Run((other,) if other else (), QUIET[quiet])
        except ConfigError as e:
            COVERED["quiet pairs are refused"] += 1
            if quiet not in str(e):
                changed.append(f"{quiet} together with {other}: {e}")
            continue
        COVERED["quiet pairs change nothing"] += 1
        if actual.shown() != expected.shown():
            changed.append(f"{quiet} changes {other}")
    assert changed == []


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_holds_with_every_other_option(limit: str, alone: dict[str, Run]) -> None:
    options, says = LIMITS[limit]
    held = []
    for other in alone:
        if (limit, other) == ("max_pixels", "drop_field image"):
            continue  # no image is decoded
        try:
            Run((other,) if other else (), options)
            held.append(f"{limit} has no effect together with {other}")
        except WarpfeedError as e:
            COVERED["limits hold"] += 1
            if says not in str(e):
                held.append(f"{limit} together with {other}: {e}")
    assert held == []


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"drop_field": ["label"], "soft_labels": (2, 0.1)}, "soft_labels"),
        ({"drop_field": ["label"], "unlabeled": True}, "unlabeled"),
        *[
            ({"drop_field": ["image"], name: value}, name)
            for name, value in [
                ("augment", Augment.resize(8)), ("normalize", "imagenet"), ("dtype", "f32"), ("image_transform", darker),
                ("channels", 1), ("layout", "nchw"), ("background", (1, 2, 3)), ("convert_to_u8", True),
            ]
        ],
        ({"weights": [1.0] * COUNT, "shuffle": True}, "shuffle"),
        ({"balanced": True, "shuffle": True, "seed": 3}, "shuffle"),
        ({"image_transform_processes": 0}, "image_transform_processes"),
        ({"image_transform_moves_pixels": False}, "image_transform_moves_pixels"),
        ({"match_labels_by_name": True}, "match_labels_by_name"),
        ({"keep_labels": True}, "keep_labels"),
        ({"cache_dir": "x"}, "cache_dir"),
    ],
)  # fmt: skip
def test_an_option_without_effect_is_refused_by_name(options: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        Loader(Samples(), output="numpy", **options)


def test_options_of_images_and_labels_are_refused_for_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(bytes(400))
    data = Tokens(tmp_path / "tokens.bin", 8)
    Loader(data, output="numpy").close()
    for options in (
        {"augment": Augment.resize(8)}, {"normalize": "imagenet"}, {"dtype": "f32"}, {"image_transform": darker}, {"soft_labels": (2, 0.1)},
        {"layout": "nchw"}, {"unlabeled": True},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"{next(iter(options))}( has no effect, because the loader reads no images| changes .*, (?:and|but) the loader has no (?:image|label) field)"):
            Loader(data, output="numpy", **options)


def test_augment_without_an_image_field_is_refused() -> None:
    rows = {"rows": Ragged("u8", (), 4)}
    with pytest.raises(ConfigError, match="^augment has no effect, because the loader reads no images; leave augment out"):
        Loader(Samples(), drop_field="image", fields=rows, augment=Augment.resize(8))
