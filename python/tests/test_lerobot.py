"""Compares ``LeRobot`` with the dataset class of the ``lerobot`` library: several frames, padding,
episodes and statistics. Also tests packing, and the errors for wrong options."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from warpfeed import Augment, ConfigError, Image, LeRobot, Loader, NdArray, Text, WarpfeedError, pack, split

SETS = ROOT / "tests" / "fixtures" / "formats" / "lerobot"
VERSIONS = ["v21", "v30"]
SHAPES = {
    "observation.state": ("f32", [3]),
    "observation.grid": ("f32", [2, 3]),
    "action": ("f32", [4]),
    "next.reward": ("f32", []),
    "next.done": ("u8", []),
    "timestamp": ("f32", []),
    "frame_index": ("i64", []),
    "episode_index": ("i64", []),
    "index": ("i64", []),
    "task_index": ("i64", []),
}


def answers(version: str) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = json.loads((SETS / f"{version}.json").read_text())
    return result


def batches(data: Any, deltas: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Returns all samples of a dataset as one batch."""
    fields: dict[str, Any] = {"task": Text(), "wrist": Image("observation.images.wrist")}
    for name, (dtype, shape) in SHAPES.items():
        frames = [len(deltas[name])] if name in deltas else []
        fields[name] = NdArray(dtype, [*frames, *shape])
        if name == "timestamp" and deltas:
            del fields[name]  # a sample has at most 16 fields
        if frames:
            fields[f"{name}_is_pad"] = NdArray("u8", frames)
    options = {"augment": Augment.resize((4, 5)), "output": "numpy", "batch_size": 100, **options}
    [batch] = Loader(data, fields=fields, **options)
    return {name: batch[name] for name in fields}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("way", [0, 1, 2], ids=["plain", "deltas", "episodes"])
def test_the_values_are_those_of_the_librarys_dataset_class(version: str, way: int) -> None:
    answer = answers(version)[way]
    deltas = {
        name: values for name, values in (answer.get("delta_timestamps") or {}).items() if "images" not in name
    }
    data = LeRobot(SETS / version, episodes=answer.get("episodes"), delta_timestamps=deltas)
    actual = batches(data, deltas)
    items = answer["items"]
    assert len(actual["task"]) == len(items)
    assert [str(task) for task in actual["task"]] == [item["task"] for item in items]
    for name in set(actual) - {"task", "wrist"}:
        expected = np.array([item[name] for item in items])
        assert np.array_equal(np.asarray(actual[name], np.float64), expected.astype(np.float64)), name
    wrist = np.asarray(actual["wrist"])
    assert [zlib.crc32(one.tobytes()) for one in wrist] == [item["observation.images.wrist"] for item in items]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("workers", [1, 3])
def test_stacked_images_are_those_of_the_librarys_dataset_class(version: str, workers: int) -> None:
    name, answer = "observation.images.top", answers(version)[1]
    shape = json.loads((SETS / version / "meta" / "info.json").read_text())["features"][name]["shape"]
    loader = Loader(
        LeRobot(SETS / version, delta_timestamps={name: answer["delta_timestamps"][name]}),
        fields={name: Image(name, frames=2), f"{name}_is_pad": NdArray("u8", [2])},
        augment=Augment.pass_through(tuple(shape[:2])),
        output="numpy",
        batch_size=4,
        num_workers=workers,
    )
    results, pads = [], []
    for batch in loader:
        assert batch[name].shape[1:] == (2, *shape)
        results += [[zlib.crc32(np.ascontiguousarray(frame).tobytes()) for frame in clip] for clip in batch[name]]
        pads += batch[f"{name}_is_pad"].tolist()
    assert results == [item[name] for item in answer["items"]]
    assert pads == [item[f"{name}_is_pad"] for item in answer["items"]]
    assert results[0][0] == results[0][1] and pads[0] == [1, 0]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_path_and_a_split_open_the_same_samples(version: str) -> None:
    plain = batches(SETS / version, {}, drop_field=["image", "label"])
    for data, options in (
        (LeRobot(SETS / version, split="train"), {}),
        (SETS / version / "train", {"drop_field": ["image", "label"]}),
        (LeRobot(SETS / version, delta_indices=None, features=[*SHAPES, "task", "observation.images.wrist"]), {}),
    ):
        other = batches(data, {}, **options)
        assert all(np.array_equal(plain[name], other[name]) for name in plain)
    parts = split(LeRobot(SETS / version), [0.5, 0.5], seed=1)
    assert sorted(sum(parts, [])) == list(range(15))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("way", [0, 2], ids=["all", "episodes"])
def test_statistics_are_those_of_the_library(version: str, way: int) -> None:
    answer = answers(version)[way]
    stats = LeRobot(SETS / version, episodes=answer.get("episodes")).stats()
    assert stats.keys() == answer["stats"].keys()
    for name, expected in answer["stats"].items():
        for key in ("min", "max", "mean", "std"):
            assert np.allclose(stats[name][key], np.ravel(expected[key]), rtol=1e-9, atol=1e-12), (name, key)
        assert stats[name]["count"] == np.ravel(expected["count"])[0]


def test_shuffled_batches_are_equal_with_one_and_three_workers() -> None:
    def run(workers: int) -> list[Any]:
        data = LeRobot(SETS / "v30", delta_indices={"action": range(-1, 3)})
        fields = {"action": NdArray("f32", [4, 4]), "action_is_pad": NdArray("u8", [4]), "task": Text()}
        loader = Loader(data, batch_size=4, shuffle=True, seed=3, num_workers=workers, fields=fields, output="numpy")
        return [(b["action"].tobytes(), b["action_is_pad"].tobytes(), list(b["task"])) for b in loader]

    assert run(1) == run(3) and len(run(1)) == 4


def test_wrong_options_say_what_is_wrong(tmp_path: Path) -> None:
    def cause(error: type[BaseException], **options: Any) -> str:
        with pytest.raises(error) as raised:
            Loader(LeRobot(SETS / "v30", **options), fields={"task": Text()})
        return str(raised.value)

    message = cause(ConfigError, delta_timestamps={"action": [0.0, 0.15]})
    assert "'action'" in message or '"action"' in message
    assert "0.15 s is not a multiple of 1/10 s" in message and "fps=10" in message, message
    assert "there is no episode 7" in cause(ConfigError, episodes=[7])
    assert "expected one of" in cause(ConfigError, split="test")
    assert "no feature" in cause(ConfigError, features=["motion"])
    assert "expected a list of names" in cause(TypeError, features="action")
    assert "expected a dict such as {'action': [-1, 0]}" in cause(TypeError, delta_indices=[0])
    assert "expected a list such as [-1, 0]" in cause(TypeError, delta_indices={"action": [0.5]})
    assert "expected a list such as [-0.1, 0.0]" in cause(TypeError, delta_timestamps={"action": "ab"})
    shutil.copytree(SETS / "v30", tmp_path / "set")
    info = tmp_path / "set" / "meta" / "info.json"
    info.write_text(info.read_text().replace('"dtype": "image"', '"dtype": "video"'))
    with pytest.raises(WarpfeedError, match="no column \"videos/observation.images.top/chunk_index\""):
        Loader(LeRobot(tmp_path / "set", features=["observation.images.top"]), fields={})
    [batch] = Loader(LeRobot(tmp_path / "set"), batch_size=99, fields={"action": NdArray("f32", [4])}, output="numpy")
    assert batch["action"].shape == (15, 4)
    info.write_text("{")
    with pytest.raises(WarpfeedError, match="info.json"):
        LeRobot(tmp_path / "set").stats()


@pytest.mark.parametrize("version", VERSIONS)
def test_episodes_are_listed_with_their_samples_and_tasks(version: str) -> None:
    items = answers(version)[0]["items"]
    data = LeRobot(SETS / version, delta_indices={"action": [0, 1]})
    table = data.episode_table()
    assert [sample for episode in table for sample in episode.samples] == list(range(len(items)))
    for episode in table:
        own = [items[sample] for sample in episode.samples]
        assert {item["episode_index"] for item in own} == {episode.index}
        assert list(episode.tasks) == list(dict.fromkeys(item["task"] for item in own))
    chosen = LeRobot(SETS / version, episodes=[2]).episode_table()
    assert [(episode.index, episode.samples) for episode in chosen] == [(2, range(len(table[2].samples)))]


@pytest.mark.parametrize("version", VERSIONS)
def test_samples_can_be_selected_by_episode_and_by_task(version: str) -> None:
    data, items = LeRobot(SETS / version), answers(version)[0]["items"]
    table = data.episode_table()
    options: dict[str, Any] = {
        "fields": {"episode_index": NdArray("i64", []), "task": Text()}, "output": "numpy", "batch_size": 5,
    }
    order = [sample for episode in reversed(table) for sample in episode.samples]
    loader = Loader(data, sampler=lambda epoch: order, **options)
    read = [int(index) for batch in loader for index in batch["episode_index"]]
    assert read == [items[sample]["episode_index"] for sample in order]
    expected = table[0].tasks[0]
    weights = [float(expected in episode.tasks) for episode in table for _ in episode.samples]
    texts = {str(task) for batch in Loader(data, weights=weights, seed=1, **options) for task in batch["task"]}
    assert texts <= {task for episode in table if expected in episode.tasks for task in episode.tasks}


@pytest.mark.parametrize("version", VERSIONS)
def test_packed_frames_have_the_values_of_the_original(version: str, tmp_path: Path) -> None:
    deltas = {"action": [-0.1, 0.0, 0.3]}
    report = pack(LeRobot(SETS / version), tmp_path / "exact", frames=True, recode="keep_bytes")
    assert report["psnr"] is None and report["samples"] == 15
    one, other = (
        batches(LeRobot(path, delta_timestamps=deltas), deltas) for path in (SETS / version, tmp_path / "exact")
    )
    assert one.keys() == other.keys()
    for name in one:
        assert np.array_equal(np.asarray(one[name]), np.asarray(other[name])), name
    exact = LeRobot(tmp_path / "exact")
    assert exact.stats() == LeRobot(SETS / version).stats()
    assert exact.episode_table() == LeRobot(SETS / version).episode_table()
    report = pack(LeRobot(SETS / version), tmp_path / "lossy", frames=True, quality=80)
    mean, lowest, key = report["psnr"]
    assert mean >= lowest > 10 and key.startswith("episode_")
    assert len(list(Loader(tmp_path / "lossy", fields={"task": Text()}, batch_size=5, output="numpy"))) == 3
    with pytest.raises(ConfigError, match="packs whole episodes"):
        pack(LeRobot(SETS / version), tmp_path / "some", frames=True, samples=[0])


@pytest.mark.parametrize("deltas", [None, [-0.2, -0.1, 0.0, 0.1]], ids=["plain", "deltas"])
def test_video_cameras_have_the_frames_of_lerobots_dataset(deltas: list[float] | None) -> None:
    camera = "observation.images.front"
    answer = answers("v30_video")[0 if deltas is None else 1]
    data = LeRobot(SETS / "v30_video", delta_timestamps=None if deltas is None else {camera: deltas})
    fields: dict[str, Any] = {
        "front": Image(camera) if deltas is None else Image(camera, frames=4),
        "action": NdArray("f32", [2]),
    }
    options: dict[str, Any] = {"augment": Augment.resize((64, 96)), "batch_size": 15, "output": "numpy"}
    [batch] = Loader(data, fields=fields, **options)
    for index, item in enumerate(answer["items"]):
        expected = np.array(item[camera], np.int16)
        actual = batch["front"][index][..., ::16, ::16, :].astype(np.int16)
        assert actual.shape == expected.shape
        assert np.abs(actual - expected).max() <= 3, index
    assert batch["action"][:, 0].tolist() == [0] * 5 + [1] * 3 + [2] * 7
    [other] = Loader(data, fields=fields, num_workers=1, **options)
    assert np.array_equal(batch["front"], other["front"])
