"""Tests that the loop receives the result of ``collate``, including after a resume and with
``replay``, that errors name the batch, and that the built-in functions return the boxes and
classes of each sample for every box format."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import numpy as np
import pytest
from conftest import need
import warpfeed.collate
from warpfeed import Augment, Boxes, ConfigError, Loader, WarpfeedError

OPTIONS: dict[str, Any] = {"batch_size": 16, "augment": Augment.train(32), "output": "numpy"}


def summed(batch: Any) -> tuple[int, int, list[int], int]:
    content = int(batch["image"].sum(dtype=np.int64)) + int(batch["label"].sum())
    return batch.epoch, batch.batch_index, batch.ids, content


def test_the_loop_receives_the_result_of_collate(mini: str) -> None:
    plain = [summed(_dict(b)) for b in Loader(mini, shuffle=True, seed=2, **OPTIONS)]
    assert list(Loader(mini, shuffle=True, seed=2, collate=summed, **OPTIONS)) == plain
    assert list(Loader(mini, collate=lambda batch: None, **OPTIONS)) == [None] * 4


class _Named(dict[str, Any]):
    """A dict of two fields, with the batch's metadata as attributes."""


def _dict(batch: Any) -> Any:
    named = _Named(image=batch.images, label=batch.labels)
    named.epoch, named.batch_index, named.ids = batch.epoch, batch.batch_index, batch.ids  # type: ignore[attr-defined]
    return named


def test_collate_works_with_resume_replay_and_processes(mini: str) -> None:
    options = {**OPTIONS, "shuffle": True, "seed": 2, "collate": summed}
    complete = [result for epoch in range(2) for result in Loader(mini, **options).epoch_from(epoch, 0)]
    loader = Loader(mini, **options)
    it = iter(loader)
    assert [next(it), next(it), next(it)] == complete[:3]
    again = Loader(mini, resume=loader.state_dict(), num_workers=1, **options)
    assert [*again, *again] == complete[3:]
    replayed = Loader(mini, **options).replay(2)
    assert [next(replayed) for _ in range(3)] == [complete[0], complete[1], complete[0]]
    assert list(pickle.loads(pickle.dumps(Loader(mini, **options)))) == complete[:4]


def test_collate_runs_after_transforms_with_all_properties(mini: str) -> None:
    def seen(batch: Any) -> Any:
        assert batch.valid.tolist() == [True] * 16 and len(batch.sample_keys) == 16 and batch.mixing is None
        return {"x": batch["pixels"], "size": batch.field_types, "labels": batch["labels"]}

    renamed = Loader(
        mini, batch_transform=lambda x, y: {"pixels": x + 1, "labels": y}, collate=seen, augment=Augment.resize(8, 8),
        batch_size=16, output="numpy",
    )  # fmt: skip
    plain = Loader(mini, augment=Augment.resize(8, 8), batch_size=16, output="numpy")
    for batch, (images, labels) in zip(renamed, plain, strict=True):
        assert list(batch) == ["x", "size", "labels"] and np.array_equal(batch["labels"], labels)
        assert np.array_equal(batch["x"], images + 1)


def wrong(batch: Any) -> Any:
    raise {0: ValueError("too few boxes"), 1: StopIteration("done")}[batch.batch_index]


def test_an_exception_names_the_batch_and_is_the_cause(mini: str) -> None:
    it = iter(Loader(mini, collate=wrong, **OPTIONS))
    with pytest.raises(WarpfeedError, match=r"^collate \(wrong\) at batch 0 of epoch 0 \(samples 0, 1, .*, \.\.\.\): ValueE") as e:
        next(it)
    assert isinstance(e.value.__cause__, ValueError) and e.value.kind == "transform"
    assert e.value.__cause__.__traceback__.tb_next.tb_frame.f_code.co_name == "wrong"  # type: ignore[union-attr]
    # A StopIteration must not end the loop early.
    with pytest.raises(WarpfeedError, match="collate .*batch 1 .*StopIteration: done"):
        next(it)


def test_a_stop_iteration_of_a_transform_does_not_end_the_epoch(mini: str) -> None:
    def stop(images: Any, labels: Any) -> Any:
        raise StopIteration

    with pytest.raises(WarpfeedError, match=r"batch_transform\[0\] \(stop\) at batch 0 of epoch 0 .*StopIteration"):
        list(Loader(mini, batch_transform=stop, **OPTIONS))


def test_a_collate_that_is_not_callable_is_rejected(mini: str) -> None:
    with pytest.raises(TypeError, match="collate=3: expected a function"):
        Loader(mini, collate=3, **OPTIONS)  # type: ignore[arg-type]


class Annotated:
    """A dataset of 40x20 images, each with as many boxes as its index."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        boxes = np.array([[2 * n, n, 2 * n + 10, n + 8] for n in range(index)], np.float32).reshape(-1, 4)
        return {
            "image": np.full((20, 40, 3), index, np.uint8),
            "boxes": boxes, "boxes.class": np.arange(index, dtype=np.int64),
            "boxes.crowd": np.zeros(index, np.uint8), "image_id": np.array(100 + index, np.int64),
        }  # fmt: skip


FORMATS = [(to, relative) for to in ("xyxy", "xywh", "cxcywh") for relative in (False, True)]


def annotated(collate: Any, output: str, layout: str | None = None, **options: Any) -> Any:
    options = {"columns": {"class": "i16", "crowd": "u8"}, **options}
    fields = {"boxes": Boxes(5, **options), "image_id": warpfeed.NdArray("i64")}
    loader = Loader(
        Annotated(), batch_size=4, augment=Augment.resize((20, 80)), fields=fields, collate=collate, output=output,
        layout=layout, normalize="imagenet",
    )  # fmt: skip
    return next(iter(loader))


@pytest.mark.parametrize(("to", "relative"), FORMATS)
@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_detection_targets_are_the_boxes_of_each_sample(to: str, relative: bool, output: str, layout: str) -> None:
    if output == "torch":
        need("torch")
    collate = functools.partial(warpfeed.collate.detection_targets, first_class=1)
    images, targets = annotated(collate, output, layout, out_format=to, out_relative=relative)
    assert len(images) == len(targets) == 4 and all(tuple(image.shape) == (3, 20, 80) for image in images)
    for index, target in enumerate(targets):
        # The resize doubles the width of the image.
        want = [[4 * n, n, 4 * n + 20, n + 8] for n in range(index)]
        assert np.allclose(np.asarray(target["boxes"]), np.array(want).reshape(-1, 4), atol=1e-4)
        assert str(target["boxes"].dtype).endswith("float32") and str(target["labels"].dtype).endswith("int64")
        assert target["labels"].tolist() == [n + 1 for n in range(index)]
        assert target["iscrowd"].tolist() == [0] * index and int(target["image_id"]) == 100 + index


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_all_values_of_a_detection_target_are_arrays(output: str) -> None:
    torch = need("torch") if output == "torch" else None

    class Areas(Annotated):
        def __getitem__(self, index: int) -> dict[str, Any]:
            crowd = np.arange(index, dtype=np.uint8) % 2
            return super().__getitem__(index) | {"boxes.crowd": crowd, "boxes.area": np.arange(index, dtype=np.float32) + 0.5}

    columns = {"class": "i64", "crowd": "u8", "area": "f32"}
    fields = {"boxes": Boxes(5, columns), "image_id": warpfeed.NdArray("i64")}
    options = {"batch_size": 3, "last_batch": "pad", "augment": Augment.resize((20, 40)), "output": output, "fields": fields}
    targets = [target for _, batch in Loader(Areas(), collate=warpfeed.collate.detection_targets, **options) for target in batch]
    names = ["boxes", "labels", "valid", "iscrowd", "area", "image_id"]
    for index, target in enumerate(targets[:4]):
        assert list(target) == names
        assert all(isinstance(value, torch.Tensor if torch else (np.ndarray, np.generic)) for value in target.values())
        # Boxes of crowds are dropped.
        assert target["area"].tolist() == [n + 0.5 for n in range(0, index, 2)]
    valid = [target["valid"] for target in targets]
    assert [bool(value) for value in valid] == [True] * 4 + [False] * 2 and all(value.shape == () for value in valid)


@pytest.mark.parametrize(("to", "relative"), FORMATS)
@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_yolo_targets_are_one_array_of_all_boxes(to: str, relative: bool, output: str) -> None:
    if output == "torch":
        need("torch")
    images, rows = annotated(warpfeed.collate.yolo_targets, output, out_format=to, out_relative=relative)
    want = [
        [i, n, (4 * n + 10) / 80, (n + 4) / 20, 20 / 80, 8 / 20] for i in range(4) for n in range(i)
    ]  # fmt: skip
    assert tuple(images.shape) == (4, 3, 20, 80) and str(rows.dtype).endswith("float32")
    assert np.allclose(np.asarray(rows), want, atol=1e-6)


@pytest.mark.parametrize(("to", "relative"), FORMATS)
@pytest.mark.parametrize(("output", "layout"), [("numpy", "nhwc"), ("numpy", "nchw"), ("torch", None)])
def test_boxes_match_the_trimmed_image(to: str, relative: bool, output: str, layout: str | None) -> None:
    if output == "torch":
        need("torch")

    def trimmed(batch: Any) -> Any:
        full = [array if isinstance(array, np.ndarray) else array.clone() for array in (batch["image"], batch["boxes"])]
        arrays = {**batch, "image": full[0], "boxes": full[1]}
        before = type(batch)(arrays, batch._native, {}, batch._delivery, batch.field_types)
        after = warpfeed.collate.trim(batch, multiple=8)
        functions = (warpfeed.collate.detection_targets, warpfeed.collate.yolo_targets)
        return [f(form) for form in (before, after) for f in functions], np.asarray(after["boxes"]), after.image_size

    fields = {"boxes": Boxes(5, {"class": "i64"}, out_format=to, out_relative=relative)}
    loader = Loader(
        Annotated(), batch_size=4, augment=Augment.pad_to((64, 96)), fields=fields, collate=trimmed, output=output,
        layout=layout, drop_field=["label"],
    )  # fmt: skip
    [((images, complete), (_, _), (cut, targets), (_, rows)), boxes, size] = next(iter(loader))
    # The images have 20x40 pixels.
    assert size == (24, 40) and tuple(images[0].shape) == (3, 64, 96) and tuple(cut[0].shape) == (3, 24, 40)
    for before, after in zip(complete, targets, strict=True):
        assert np.allclose(np.asarray(before["boxes"]), np.asarray(after["boxes"]), atol=1e-4)
    want = [[i, n, (2 * n + 5) / 40, (n + 4) / 24, 10 / 40, 8 / 24] for i in range(4) for n in range(i)]
    assert np.allclose(np.asarray(rows), want, atol=1e-6)
    if relative and to == "xyxy":
        assert np.allclose(boxes[3, 2], [4 / 40, 2 / 24, 14 / 40, 10 / 24], atol=1e-6)
    assert str(boxes.dtype) == "float32" and (boxes[0] == 0).all()


def test_trim_rejects_fields_that_it_cannot_trim() -> None:
    options: dict[str, Any] = {"augment": Augment.pad_to((64, 96)), "output": "numpy", "drop_field": ["label"], "batch_size": 4}
    fields = {"x": warpfeed.Image(), "boxes": Boxes(5)}
    with pytest.raises(WarpfeedError, match=r"trim: fields=\{'x': Image\(...\)\} is a second image"):
        next(iter(Loader(Annotated(), fields=fields, collate=warpfeed.collate.trim, **options)))
    lost = Loader(
        Annotated(), fields={"boxes": Boxes(5, out_relative=True)}, batch_transform=lambda fields: {"image": fields["image"]},
        collate=warpfeed.collate.trim, **options,
    )  # fmt: skip
    with pytest.raises(WarpfeedError, match="trim: the batch has no field 'boxes'; batch_transform must keep it"):
        next(iter(lost))


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_crowds_are_left_out_of_targets_by_default(output: str) -> None:
    if output == "torch":
        need("torch")

    class Crowds(Annotated):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return super().__getitem__(index) | {"boxes.crowd": np.arange(index, dtype=np.uint8) % 2}

    def loaded(collate: Any, columns: dict[str, str]) -> Any:
        options = {"batch_size": 4, "augment": Augment.resize((20, 40)), "output": output, "collate": collate}
        return next(iter(Loader(Crowds(), fields={"boxes": Boxes(5, columns)}, **options)))

    targets, yolo = warpfeed.collate.detection_targets, warpfeed.collate.yolo_targets
    with_crowd = {"class": "i64", "crowd": "u8"}
    for index, target in enumerate(loaded(targets, with_crowd)[1]):
        assert target["labels"].tolist() == list(range(0, index, 2))
        assert target["boxes"][:, 1].tolist() == list(range(0, index, 2))
        assert target["iscrowd"].tolist() == [0] * len(range(0, index, 2))
    for index, target in enumerate(loaded(functools.partial(targets, include_crowd=True), with_crowd)[1]):
        assert target["labels"].tolist() == list(range(index)) and target["iscrowd"].tolist() == [n % 2 for n in range(index)]
    for index, target in enumerate(loaded(targets, {"class": "i64"})[1]):
        assert target["labels"].tolist() == list(range(index))
    pairs = [(int(row[0]), int(row[1])) for row in loaded(yolo, with_crowd)[1]]
    assert pairs == [(index, n) for index in range(4) for n in range(0, index, 2)]
    every = loaded(functools.partial(yolo, include_crowd=True), with_crowd)[1]
    assert len(every) == 6


def test_a_batch_without_boxes_is_empty_and_not_an_error() -> None:
    class Empty(Annotated):
        def __len__(self) -> int:
            return 1

    fields = {"boxes": Boxes(2, {"class": "i64"})}
    options = {"batch_size": 1, "augment": Augment.resize(8, 8), "fields": fields, "output": "numpy"}
    _, targets = next(iter(Loader(Empty(), collate=warpfeed.collate.detection_targets, **options)))
    assert targets[0]["boxes"].shape == (0, 4) and targets[0]["labels"].shape == (0,)
    assert next(iter(Loader(Empty(), collate=warpfeed.collate.yolo_targets, **options)))[1].shape == (0, 6)


def test_hf_returns_the_arguments_of_a_model(mini: str) -> None:
    plain = next(iter(Loader(mini, **OPTIONS)))
    batch = next(iter(Loader(mini, collate=warpfeed.collate.hf, **OPTIONS)))
    assert list(batch) == ["pixel_values", "labels"] and np.array_equal(batch["labels"], plain[1])
    assert np.array_equal(batch["pixel_values"], plain[0].transpose(0, 3, 1, 2))
    soft = next(iter(Loader(mini, collate=warpfeed.collate.hf, soft_labels=(4, 0.1), **OPTIONS)))
    assert soft["labels"].shape == (16, 4)


def test_padding_does_not_contribute_to_the_loss(mini: str) -> None:
    options = {**OPTIONS, "batch_size": 48, "last_batch": "pad"}
    labels = list(Loader(mini, collate=warpfeed.collate.hf, **options))[-1]["labels"]
    assert (labels[:16] >= 0).all() and (labels[16:] == -100).all()
    soft = list(Loader(mini, collate=warpfeed.collate.hf, soft_labels=(4, 0.1), **options))[-1]["labels"]
    assert np.allclose(soft[:16].sum(1), 1) and not soft[16:].any()

    fields = {"boxes": Boxes(5, {"class": "i64"})}
    options = {"batch_size": 3, "last_batch": "pad", "augment": Augment.resize((20, 80)), "fields": fields, "output": "numpy"}
    last = list(Loader(Annotated(), collate=warpfeed.collate.yolo_targets, **options))[-1][1]
    assert len(Annotated()) == 4 and set(last[:, 0]) == {0} and len(last) == 3


def test_a_missing_boxes_field_is_rejected(mini: str) -> None:
    for collate in (warpfeed.collate.detection_targets, warpfeed.collate.yolo_targets):
        with pytest.raises(WarpfeedError, match="no Boxes field 'boxes'; add fields=") as e:
            next(iter(Loader(mini, collate=collate, **OPTIONS)))
        assert isinstance(e.value.__cause__, ConfigError)
        with pytest.raises(WarpfeedError, match="the field 'boxes' has no column 'class'"):
            annotated(collate, "numpy", columns={})
        with pytest.raises(TypeError, match="expected the batch that a loader passes to collate"):
            collate({"boxes": np.zeros((1, 1, 4))})


def test_torchvisions_detector_accepts_the_targets() -> None:
    need("torch")
    detection = need("torchvision.models.detection")
    collate = functools.partial(warpfeed.collate.detection_targets, first_class=1)
    images, targets = annotated(collate, "torch")
    model = detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=5)
    losses = model(images, targets)
    assert len(losses) == 4 and all(loss.isfinite() for loss in losses.values())
