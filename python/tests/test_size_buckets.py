"""Tests that batches with `SizeBuckets` contain images of one bucket, resized and cropped to its
size."""

import math
import pickle
import random

import numpy as np
import pytest

import warpfeed
from conftest import need
from warpfeed import Augment, ConfigError, Loader, SizeBuckets, image_sizes

Image = need("PIL.Image")

SIZES = [(32, 32), (24, 40), (40, 24), (64, 64)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder of PNGs of random sizes, written by Pillow."""
    root, rng = tmp_path_factory.mktemp("sizes"), random.Random(1)
    (root / "class").mkdir()
    for n in range(60):
        height, width = rng.randint(20, 120), rng.randint(20, 120)
        pixels = np.random.default_rng(n).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((width, height), Image.BICUBIC).save(root / "class" / f"{n:02}.png")
    return root


def bucket(height, width):
    """Returns the bucket with the closest aspect ratio. Among several, returns the largest that
    has no more pixels than the image, or else the smallest."""
    distance = [abs(math.log(w / h) - math.log(width / height)) for h, w in SIZES]
    close = [size for size, d in zip(SIZES, distance, strict=True) if d <= min(distance) + 1e-9]
    fitting = [size for size in close if size[0] * size[1] <= height * width]
    return max(fitting, key=math.prod) if fitting else min(close, key=math.prod)


def cover(image, height, width):
    """Scales the image with Pillow to cover (height, width), and crops the center."""
    scale = max(width / image.width, height / image.height)
    resized = max(width, round(image.width * scale)), max(height, round(image.height * scale))
    left, top = round((resized[0] - width) / 2), round((resized[1] - height) / 2)
    return np.asarray(image.resize(resized, Image.BILINEAR).crop((left, top, left + width, top + height)))


def test_images_in_size_buckets_equal_crops_by_pillow(folder):
    files = sorted((folder / "class").iterdir())
    sizes = image_sizes(folder)
    assert sizes == [Image.open(file).size[::-1] for file in files]
    buckets = SizeBuckets(np.array(sizes), SIZES, budget=5000)
    options = {"batch_size": 4, "shuffle": True, "seed": 3, "augment": Augment.cover(1), "output": "numpy"}
    seen, shapes = [], set()
    for batch in Loader(folder, buckets=buckets, **options):
        height, width = batch["image"].shape[1:3]
        shapes.add((height, width))
        assert len(batch.ids) <= min(4, 5000 // (height * width))
        for id, image in zip(batch.ids, batch["image"], strict=True):
            assert bucket(*sizes[id]) == (height, width)
            expected = cover(Image.open(files[id]), height, width).astype(int)
            assert np.abs(image - expected).max() <= 1
        seen += batch.ids
    assert sorted(seen) == list(range(60)) and shapes == set(SIZES)


def test_size_buckets_resume_and_pickle(folder):
    buckets = SizeBuckets(image_sizes(folder), SIZES)
    make = lambda **extra: Loader(  # noqa: E731
        folder, buckets=buckets, batch_size=4, shuffle=True, seed=3, augment=Augment.train(1), output="numpy", **extra
    )
    loader = make()
    it = iter(loader)
    first = [next(it) for _ in range(3)]
    state, rest = loader.state_dict(), list(it)
    resumed = list(make(resume=state))
    assert [batch.ids for batch in resumed] == [batch.ids for batch in rest]
    assert all((a["image"] == b["image"]).all() for a, b in zip(resumed, rest, strict=True))
    complete = [batch.ids for batch in [*first, *rest]]
    assert [batch.ids for batch in pickle.loads(pickle.dumps(make()))] == complete and len(complete) == len(loader)
    other = SizeBuckets(image_sizes(folder), [(h * 2, w * 2) for h, w in SIZES])
    with pytest.raises(ConfigError, match="resume: the order"):
        Loader(
            folder, buckets=other, batch_size=4, shuffle=True, seed=3, augment=Augment.train(1), output="numpy",
            resume=state,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("images", "sizes", "error", "text"),
    [
        ([(3, 4), (5,)], SIZES, (TypeError, ValueError), None),
        ([3, 4], SIZES, TypeError, r"images: the shape is \(2,\)"),
        ([(3.5, 4)], SIZES, TypeError, "expected a list of .height, width. in pixels"),
        ([(-3, 4)], SIZES, ConfigError, "a side from 0 to"),
        ([(3, 4)], [], TypeError, "sizes: the shape"),
    ],
)
def test_wrong_sizes_are_refused(images, sizes, error, text):
    with pytest.raises(error, match=text):
        SizeBuckets(images, sizes)


def test_size_buckets_of_a_different_dataset_are_refused(folder):
    with pytest.raises(ConfigError, match="SizeBuckets: 2 image sizes, but the source has 60 samples"):
        Loader(folder, buckets=SizeBuckets([(3, 4), (5, 6)], SIZES), augment=Augment.cover(8))
    with pytest.raises(ConfigError, match="expected at least"):
        Loader(folder, buckets=SizeBuckets(image_sizes(folder), SIZES, budget=100), augment=Augment.cover(8))
    assert "60 images" in repr(warpfeed.SizeBuckets(image_sizes(folder), SIZES))


def test_a_list_of_shards_is_not_a_dataset_of_images():
    with pytest.raises(TypeError, match=r"data is a list of 2 items; expected one dataset.*Concat"):
        image_sizes(["a.tar", "b.tar"])


def test_the_width_of_no_samples_is_an_error():
    with pytest.raises(ValueError, match=r"ids=\[\] has no samples; expected the samples of a batch"):
        warpfeed.Buckets([3, 4], [4]).width([])
