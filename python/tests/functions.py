"""Image functions for worker processes. This module imports little, so that the processes start
quickly."""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any

import numpy as np


def noise(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    assert image.shape == (32, 32, 3) and image.dtype == np.uint8
    return image ^ rng.integers(0, 8, image.shape, np.uint8)


def plain(image: np.ndarray, rng: Any) -> np.ndarray:
    return image


def turned(image: np.ndarray, rng: Any) -> np.ndarray:
    return np.ascontiguousarray(image[::-1, ::-1])


def in_place(image: np.ndarray, rng: Any) -> np.ndarray:
    image[...] = 255 - image
    return image[::-1]


KEPT: list[tuple[np.ndarray, np.ndarray]] = []


def keeps(image: np.ndarray, rng: Any) -> np.ndarray:
    """Keeps each image and a copy of it. Fails if an image that an earlier call kept has
    changed."""
    assert all(np.array_equal(kept, copy) for kept, copy in KEPT), "a kept image has changed"
    KEPT.append((image, image.copy()))
    return image


def with_globals(image: np.ndarray, rng: Any) -> np.ndarray:
    out = image.copy()
    out[0, 0] = random.randrange(256), np.random.randint(256), 0
    if "torch" in sys.modules:
        out[0, 0, 2] = int(sys.modules["torch"].randint(256, (1,)))
    return out


def fails(image: np.ndarray, rng: Any) -> np.ndarray:
    return inner(image)


class Odd(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def inner(image: np.ndarray) -> np.ndarray:
    if int(image[0, 0, 0]) == 7:
        raise ValueError("seven is wrong")
    if int(image[0, 0, 0]) == 9:
        raise Odd(9, 10)
    return image


def slow(image: np.ndarray, rng: Any) -> np.ndarray:
    time.sleep(0.2)
    return image


def stuck(image: np.ndarray, rng: Any) -> np.ndarray:
    """Creates a file in the `WARPFEED_STUCK` folder, and never returns."""
    open(os.path.join(os.environ["WARPFEED_STUCK"], str(os.getpid())), "w").close()
    time.sleep(3600)
    return image


class Large:
    """A function with a pickle that does not fit into a pipe."""

    def __init__(self) -> None:
        self.table = os.urandom(1 << 20)

    def __call__(self, image: np.ndarray, rng: Any) -> np.ndarray:
        return image


def dies(image: np.ndarray, rng: Any) -> np.ndarray:
    os._exit(3)


def pid(image: np.ndarray, rng: Any) -> np.ndarray:
    image[0, 0] = list((os.getpid() % (1 << 24)).to_bytes(3, "little"))
    return image


def float_result(image: np.ndarray, rng: Any) -> np.ndarray:
    return image / np.float32(255)


def small_result(image: np.ndarray, rng: Any) -> np.ndarray:
    return image[:16]


def no_result(image: np.ndarray, rng: Any) -> None:
    image[...] = 0
