"""Tests that user code needs no ``del``: a loop that holds one batch at a time must not block on
itself, and a stored exception must not keep a batch alive. The garbage collector is disabled."""

from __future__ import annotations

import gc
import tarfile
import weakref
from typing import Any, Iterator

import numpy as np
import pytest
import warpfeed
from conftest import MINI, ROOT, Images, batches_of, need, ran
from test_fields import drawn, table
from warpfeed import Augment, Boxes, Loader, NdArray, TableOptions, WarpfeedError

#: Number of batches per test, several times the number of slots of these loaders.
BATCHES = 200
OPTIONS: dict[str, Any] = {
    "batch_size": 2,
    "augment": Augment.resize(16, 16),
    "prefetch": 1,
    "held_batches_timeout": 10,
    "num_workers": 1,
}


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Disables the garbage collector, so that only reference counts free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory, packed: str) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Returns datasets by type, each with the options for opening it."""
    folder = tmp_path_factory.mktemp("sets")
    for kind in ("coco", "voc"):
        drawn(folder / kind, kind)
    for split in ("images", "labels"):
        (folder / "yolo" / split).mkdir(parents=True)
    for number, original in enumerate(sorted((folder / "coco").rglob("*.jpg"))[:6]):
        (folder / "yolo" / "images" / f"{number}.jpg").write_bytes(original.read_bytes())
        (folder / "yolo" / "labels" / f"{number}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    with tarfile.open(folder / "set.tar", "w") as tar:
        for original in sorted(MINI.rglob("*.jpg"))[:12]:
            tar.add(original, original.name)
    (folder / "table").mkdir()
    np.arange(4000, dtype=np.uint16).tofile(folder / "tokens.bin")
    boxes = {"fields": {"boxes": Boxes(20, columns={"class": "i64"})}}
    formats = ROOT / "tests" / "fixtures" / "formats"
    columns = TableOptions(
        image="image", root=folder / "table" / "images", label="kind", delimiter=";", columns=[]
    )
    return {
        "folder": (MINI, {}),
        "lmdb": (packed, {}),
        "tar": (folder / "set.tar", {"unlabeled": True}),
        "coco": (folder / "coco" / "annotations" / "instances_train.json", boxes),
        "voc": (folder / "voc", boxes),
        "yolo": (warpfeed.Yolo(folder / "yolo"), boxes),
        "table": (table(folder / "table"), {"table": columns}),
        "parquet": (formats / "parquet" / "hub" / "train", {}),
        "mds": (formats / "mds", {}),
        "python": (Images(40, "pair"), {}),
        "python without labels": (Images(40, "unlabeled"), {"fields": {"emb": NdArray("u8", [8])}}),
        "concat": (warpfeed.Concat([MINI, MINI]), {}),
        "tokens": (warpfeed.Tokens(folder / "tokens.bin", 16), {"augment": None}),
    }


KINDS = ["folder", "lmdb", "tar", "coco", "voc", "yolo", "table", "parquet", "mds", "python", "python without labels",
         "concat", "tokens"]  # fmt: skip


def walked(loader: Loader) -> int:
    """Iterates while holding one batch at a time. Returns the number of batches."""
    count = 0
    for _batch in batches_of(loader, BATCHES):
        count += 1
    return count


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("output", ["numpy", "torch", "dlpack"])
def test_a_plain_loop_frees_batches_of_every_dataset_type(sets: Any, kind: str, output: Any) -> None:
    if output == "torch":
        need("torch")
    data, options = sets[kind]
    options = {name: value for name, value in {**OPTIONS, **options}.items() if value is not None}
    assert walked(Loader(data, output=output, **options)) == BATCHES


def caught(batch: Any) -> Any:
    with pytest.raises(WarpfeedError):
        batch["label"]
    return batch


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
@pytest.mark.parametrize(
    "collate",
    [
        caught,
        dict,
        warpfeed.collate.detection_targets,
        warpfeed.collate.yolo_targets,
        warpfeed.collate.trim,
        lambda batch: batch,
    ],
)
def test_every_form_of_a_batch_is_freed(sets: Any, kind: str, collate: Any) -> None:
    data, options = sets[kind]
    options = {**OPTIONS, **options}
    if collate in (warpfeed.collate.detection_targets, warpfeed.collate.yolo_targets):
        options["fields"] = {"boxes": Boxes(20, columns={"class": "i64"})}
    if collate is warpfeed.collate.trim:
        options["augment"] = Augment.pad_to(512, 512)
    assert walked(Loader(data, output="numpy", collate=collate, **options)) == BATCHES


@pytest.mark.usefixtures("uncollected")
def test_the_error_of_an_absent_label_may_be_kept(sets: Any) -> None:
    data, options = sets["coco"]
    ids, errors = [], set()
    for batch in batches_of(Loader(data, output="numpy", **OPTIONS, **options), BATCHES):
        try:
            batch["label"]
        except WarpfeedError as e:
            ids.append(e.with_traceback(None))
            errors.add(str(e))
    assert len(ids) == BATCHES and len(set(map(id, ids))) == BATCHES and all("label" in text for text in errors)


class Fails:
    """A dataset in which every third sample fails, inside a frame with a local variable that a
    traceback would keep alive."""

    made: list[weakref.ref[Any]] = []

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Any:
        held = np.full((8, 8, 3), index, np.uint8)
        Fails.made.append(weakref.ref(held))
        if index % 3 == 0:
            raise ValueError("each third")
        return held.tobytes() and held.copy(), 0


@pytest.mark.usefixtures("uncollected")
def test_stored_dataset_errors_have_lines_and_no_variables() -> None:
    Fails.made.clear()
    loader = Loader(Fails(), output="numpy", max_skipped=20, retries=0, **OPTIONS)
    assert sum(1 for _ in loader) == 15
    faults = loader.sample_errors()
    loader.close()
    assert len(faults) == 10 and not any(created() is not None for created in Fails.made)
    cause = faults[0][2].__cause__
    assert isinstance(cause, ValueError) and cause.__traceback__ is not None
    assert cause.__traceback__.tb_frame.f_code.co_name == "__getitem__"


@pytest.mark.usefixtures("uncollected")
def test_kept_errors_of_functions_keep_no_batch() -> None:
    def breaks(image: Any, rng: Any) -> Any:
        raise ValueError("no image")

    images: list[weakref.ref[Any]] = []

    def noted(decoded: Any) -> Any:
        images.append(weakref.ref(decoded))
        raise ValueError("no model")

    retained = []
    with warpfeed.Decoder(max_batch=2, max_in_flight=1, output="numpy").dynamic_batcher(noted, max_delay_ms=0) as batcher:
        original = next(MINI.rglob("*.jpg")).read_bytes()
        for _ in range(20):
            retained.append(batcher.submit([original]).exception(60))
    assert all(isinstance(e, ValueError) for e in retained) and not any(created() is not None for created in images)
    loader = Loader(MINI, output="numpy", image_transform=breaks, image_transform_processes=0, **OPTIONS)
    with pytest.raises(WarpfeedError, match="no image") as raised:
        next(iter(loader))
    assert raised.value.__cause__.__traceback__.tb_frame.f_locals == {}  # type: ignore[union-attr]


def test_jax_frees_the_batches_that_it_copied(sets: Any) -> None:
    need("jax")
    data, _ = sets["coco"]
    code = """
        import gc, sys, jax, warpfeed, warpfeed.jax
        gc.disable()
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        loader = warpfeed.Loader(sys.argv[1], batch_size=2, prefetch=1, held_batches_timeout=10, output="numpy", drop_last=True,
                                 augment=warpfeed.Augment.resize(16, 16), fields={"boxes": warpfeed.Boxes(20)})
        count = 0
        while count < 200:
            for _ in warpfeed.jax.sharded(loader, sharding):
                count += 1
    """
    ran(code, str(data))
