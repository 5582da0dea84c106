"""Tests that ``views`` delivers several views of each image, each with its own augmentation, size
and random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warpfeed import Augment, Boxes, ConfigError, Geometry, Image, Loader, Mix, WarpfeedError

OPTIONS: dict[str, Any] = {"batch_size": 4, "subset": range(8), "seed": 3, "output": "numpy"}


def test_each_view_has_its_own_augmentation(mini: str) -> None:
    views = [Augment.resize((12, 8)), Augment.eval(20, 16).flip(1.0), Augment.center_crop(10)]
    alone = [[images for images, _ in Loader(mini, augment=view, **OPTIONS)] for view in views]
    labels = [labels for _, labels in Loader(mini, **OPTIONS)]
    for number, batch in enumerate(Loader(mini, views=views, **OPTIONS)):
        assert list(batch) == ["views", "label"] and np.array_equal(batch["label"], labels[number])
        assert [view.shape for view in batch["views"]] == [(4, 12, 8, 3), (4, 16, 16, 3), (4, 10, 10, 3)]
        assert all(np.array_equal(view, one[number]) for view, one in zip(batch["views"], alone, strict=True))


def test_views_differ_and_are_the_same_for_any_number_of_workers(mini: str) -> None:
    one, two = (list(Loader(mini, views=Augment.simclr_views(16), num_workers=n, **OPTIONS)) for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a["views"], b["views"], strict=True))
        assert not np.array_equal(a["views"][0], a["views"][1])


def test_presets_of_dino_have_global_and_local_views(mini: str) -> None:
    views = Augment.dino_views(24, 12, 8)
    assert len(views) == 10 and eval(repr(views)) == views
    batch = next(iter(Loader(mini, views=views, normalize="imagenet", **OPTIONS)))
    assert [view.shape[1] for view in batch["views"]] == [24, 24, *[12] * 8]
    assert all(view.dtype == np.float32 for view in batch["views"])


def test_views_have_the_image_layout_in_transforms_and_collate(mini: str, torch: Any) -> None:
    options = {**OPTIONS, "output": "torch"}
    batch = next(iter(Loader(mini, views=Augment.simclr_views(16), **options)))
    for view in batch["views"]:
        assert view.shape == (4, 3, 16, 16) and view.is_contiguous(memory_format=torch.channels_last)
    pair = Loader(
        mini, views=Augment.simclr_views(16), batch_transform=lambda fields: {"both": torch.cat(fields["views"])},
        collate=lambda batch: batch["both"], **options,
    )  # fmt: skip
    assert next(iter(pair)).shape == (8, 3, 16, 16)


def test_a_damaged_image_counts_once(tmp_path: Path, mini: str) -> None:
    image = next(path for path in sorted(Path(mini).rglob("*.jpg")))
    content = image.read_bytes()
    offset = len(content) * 2 // 3
    (tmp_path / "a.jpg").write_bytes(content[:offset] + b"\xff\xd0" + content[offset:])
    loader = Loader(tmp_path, views=[Augment.resize(8, 8)] * 3, drop_field=["label"], output="numpy")
    list(loader)
    assert loader.stats()["damaged_images"] == 1


def test_the_image_may_accompany_the_views(mini: str) -> None:
    options = {"views": [Augment.train(8)], "augment": Augment.resize(6, 6), "fields": {"image": Image()}}
    batch = next(iter(Loader(mini, **options, **OPTIONS)))
    assert list(batch) == ["views", "label", "image"] and batch["image"].shape == (4, 6, 6, 3)
    assert np.array_equal(batch["image"], next(iter(Loader(mini, augment=Augment.resize(6, 6), **OPTIONS)))[0])


def test_sizes_belong_to_the_image_and_not_to_views(mini: str) -> None:
    batch = next(iter(Loader(mini, views=Augment.simclr_views(16), **OPTIONS)))
    for name in ("image_sizes", "unpadded_images"):
        with pytest.raises(AttributeError, match="which this loader does not have; add it"):
            getattr(batch, name)
    options = {**OPTIONS, "augment": Augment.pad_to((300, 300)), "fields": {"image": Image()}}
    batch = next(iter(Loader(mini, views=Augment.simclr_views(16), **options)))
    assert batch.image_sizes == [image.shape[:2] for image in batch.unpadded_images] == next(iter(Loader(mini, **options))).image_sizes


def test_unsupported_combinations_with_views_are_rejected(mini: str) -> None:
    with pytest.raises(ConfigError, match="augment and views: views replace the image"):
        Loader(mini, views=[Augment.train(8)], augment=Augment.train(8), **OPTIONS)
    for invalid in ([], [3], Augment.train(8)):
        with pytest.raises(TypeError, match="views=.*expected a list"):
            Loader(mini, views=invalid, **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="views cannot be mixed"):
        Loader(mini, views=[Augment.train(8).mix(Mix.mixup(1.0))], **OPTIONS)
    with pytest.raises(ConfigError, match="17 image fields, including views: expected at most 16"):
        Loader(mini, views=[Augment.train(8)] * 17, **OPTIONS)


def test_predictions_map_back_to_the_image_with_its_geometry() -> None:
    class Boxed:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> dict[str, Any]:
            image = np.zeros((30 + index, 50 - index, 3), np.uint8)
            return {"image": image, "label": 0, "boxes": np.array([[5, 6, 20, 25]], np.float32)}

    augment = Augment.letterbox((48, 64)).flip(0.5).vertical_flip(0.5)
    fields = {"boxes": Boxes(1), "geometry": Geometry()}
    for batch in Loader(Boxed(), augment=augment, fields=fields, batch_size=4, output="numpy"):
        for box, matrix, size, index in zip(
            batch["boxes"][:, 0], batch["geometry"], batch["geometry.size"], batch.ids, strict=True
        ):
            assert size.tolist() == [30 + index, 50 - index]
            corners = (box.reshape(2, 2) - matrix[:, 2]) / np.diagonal(matrix)
            assert np.allclose(np.sort(corners, 0), [[5, 6], [20, 25]], atol=1e-3)
    rotated = Loader(Boxed(), augment=augment.rotate(30), fields={"geometry": Geometry()}, output="numpy")
    with pytest.raises(WarpfeedError, match="sample .*'geometry'|\"geometry\".*which Geometry cannot describe"):
        list(rotated)
