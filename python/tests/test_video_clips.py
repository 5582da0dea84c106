"""Tests that ``Clips`` delivers clips of the videos in a folder, with the frames of its stride, and
that their start depends on the seed and the epoch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from warpfeed import Augment, Clips, ConfigError, Image, Loader, NdArray, WarpfeedError

VIDEOS = ROOT / "video" / "tests" / "fixtures"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, video in (("archery/a", "g2"), ("archery/b", "frag"), ("bowling/c", "vfr")):
        target = tmp_path / f"{name}.mp4"
        target.parent.mkdir(exist_ok=True)
        shutil.copy(VIDEOS / f"{video}.mp4", target)
    return tmp_path


def loader(data: Any, **options: Any) -> Loader:
    return Loader(data, **{"augment": Augment.resize((64, 96)), "batch_size": 2, "output": "numpy", **options})


def all_clips(data: Any, **options: Any) -> dict[str, Any]:
    """Returns the clip of each key in the first epoch."""
    results = {}
    for batch in loader(data, **options):
        results.update(zip(batch.sample_keys, np.array(batch["video"])))
    return results


def test_clips_have_the_frames_of_the_stride(folder: Path) -> None:
    singles = all_clips(Clips(folder, frames=1, clips_per_video=12))
    assert len(singles) == 36
    clips = all_clips(Clips(folder, frames=4, stride=3, clips_per_video=3))
    assert {key for key in clips if key.startswith("archery/a/")} == {f"archery/a/frame_{n:06}" for n in (0, 1, 2)}
    for key, clip in clips.items():
        video, first = key[: -len("000000")], int(key[-6:])
        expected = [singles[f"{video}{first + 3 * offset:06}"][0] for offset in range(4)]
        assert np.array_equal(clip, expected), key


def test_a_loader_of_clips_has_their_frames_padding_and_label(folder: Path) -> None:
    [batch] = loader(Clips(folder, frames=5, stride=3), batch_size=3)
    assert batch["video"].shape == (3, 5, 64, 96, 3)
    assert batch["video_is_pad"].tolist() == [[0, 0, 0, 0, 1]] * 3
    assert batch["label"].tolist() == [0, 0, 1]
    [batch] = loader(Clips(folder, frames=2, fps=10.0), layout="nchw", batch_size=3)
    assert batch["video"].shape == (3, 2, 3, 64, 96)
    [batch] = loader(folder, fields={"video": Image("video", frames=8)}, batch_size=3)
    assert batch["video"].shape == (3, 8, 64, 96, 3)
    with pytest.raises(WarpfeedError, match=r"shorter than a clip.* set pad_short_videos=True"):
        list(loader(Clips(folder, frames=5, stride=3, pad_short_videos=False)))


def test_jitter_depends_on_the_seed_and_the_epoch(folder: Path) -> None:
    def epochs(workers: int, seed: int = 1) -> list[bytes]:
        batches = loader(Clips(folder, frames=2, start_jitter=None), shuffle=True, seed=seed, num_workers=workers)
        return [b"".join(np.array(batch["video"]).tobytes() for batch in batches) for _ in range(3)]

    one = epochs(1)
    assert one == epochs(4)
    assert len(set(one)) == 3
    assert one != epochs(1, seed=2)


def test_wrong_options_raise_errors(folder: Path) -> None:
    for options, error, text in (
        ({"frames": 0}, ConfigError, "frames=0: expected 1 to 65536"),
        ({"stride": 2, "fps": 3.0}, ConfigError, "set only one of stride and fps"),
        ({"fps": -1.0}, ConfigError, "fps=-1"),
        ({"start_jitter": -1}, ConfigError, "start_jitter=-1: expected 0 or more"),
        ({"frames": 2.5}, TypeError, "frames=2.5: expected an integer"),
    ):
        with pytest.raises(error, match=text):
            Loader(Clips(folder, **options), fields={"video_is_pad": NdArray("u8", [8])})
