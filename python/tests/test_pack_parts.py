"""Tests that merged parts give the same dataset, whether plain processes, a Slurm array, Dask or
Ray packed them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warpfeed
from conftest import need
from warpfeed import ConfigError, WarpfeedError

OPTIONS: dict[str, Any] = {"shard_samples": 5}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def whole(mini: str, folder: Path) -> dict[str, bytes]:
    warpfeed.pack(mini, folder / "x.tar", **OPTIONS)
    return files(folder)


def test_merged_parts_equal_a_dataset_packed_at_once(mini: str, tmp_path: Path) -> None:
    expected = whole(mini, tmp_path / "whole")
    target = tmp_path / "parts" / "x.tar"
    reported: list[tuple[int, int]] = []
    for part in (2, 0):
        report = warpfeed.pack(mini, target, part=(part, 3), progress=lambda *now: reported.append(now), **OPTIONS)
        assert reported[-1] == (report["samples"], report["samples"])
    with pytest.raises(ConfigError, match="there are neither parts nor a dataset with this name"):
        warpfeed.pack_progress(target.with_name("other.tar"))
    halfway = warpfeed.pack_progress(target)
    assert halfway == {"samples": reported[0][1] + reported[-1][1], "total": 64, "parts": 3, "missing": "1", "merged": False}
    with pytest.raises(ConfigError, match="part 1 of 3 is missing"):
        warpfeed.merge(target)
    with pytest.raises(WarpfeedError, match="is incomplete"):
        warpfeed.Loader(target.parent, batch_size=4, output="numpy")
    warpfeed.pack(mini, target, part=(1, 3), **OPTIONS)
    merged = warpfeed.merge(target)
    assert merged["samples"] == 64 and merged["orphans"] == [] and len(merged["paths"]) == 13
    assert warpfeed.pack_progress(target)["merged"]
    assert files(target.parent) == expected
    for invalid, words in [((3, 3), "part 3 of 3"), ("auto", "SLURM_ARRAY_TASK_ID")]:
        with pytest.raises(ConfigError, match=words):
            warpfeed.pack(mini, tmp_path / "y.tar", part=invalid, **OPTIONS)  # type: ignore[arg-type]
    for wrong in (1, (0, 2, 3), "1/3"):
        with pytest.raises(TypeError, match="part=.*: expected \\(i, n\\), \\('auto', n\\) or 'auto'"):
            warpfeed.pack(mini, tmp_path / "y.tar", part=wrong, **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="shard_size=bytes or shard_samples=samples"):
        warpfeed.pack(mini, tmp_path / "y.tar", part=(0, 2))


def test_samples_and_keys_select_what_is_packed(mini: str, tmp_path: Path) -> None:
    def packed(name: str, **chosen: Any) -> list[str]:
        warpfeed.pack(mini, tmp_path / name, **chosen)
        return sorted(sample["key"] for sample in warpfeed.Loader(tmp_path / name, output="numpy").dataset)

    keys = [sample["key"] for sample in warpfeed.Loader(mini, output="numpy").dataset]
    train, _ = warpfeed.split(range(64), [0.75, 0.25], seed=1)
    assert packed("train.tar", samples=train) == sorted(keys[n] for n in train)
    assert packed("two.tar", keys=keys[40:42]) == keys[40:42]
    with pytest.raises(ConfigError, match="no sample has the key .typo."):
        packed("y.tar", keys=["typo"])


def test_a_slurm_array_packs_and_verifies_its_parts(mini: str, tmp_path: Path) -> None:
    expected = whole(mini, tmp_path / "whole")
    (tmp_path / "parts").mkdir()
    target = str(tmp_path / "parts" / "x.tar")

    def task(number: int, *command: str) -> subprocess.CompletedProcess[str]:
        array = {"ID": number, "MIN": 10, "STEP": 2, "COUNT": 3}
        environment = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in array.items()}
        command = (sys.executable, "-m", "warpfeed", *command)
        return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)

    for number in (14, 10, 12):
        done = task(number, "pack", mini, target, "--shard-samples", "5", "--part", "auto")
        assert done.returncode == 0, done.stderr
    done = task(10, "pack", "--merge", target)
    assert done.returncode == 0 and "64 samples" in done.stdout, done.stderr
    assert files(tmp_path / "parts") == expected
    verified = [task(number, "verify", str(tmp_path / "parts"), "--part", "auto").stderr for number in (10, 12, 14)]
    assert [text.split(": ")[-1].split(" ")[0] for text in verified] == ["21", "21", "22"], verified
    assert task(11, "verify", mini, "--part", "auto").returncode == 1, "task ID 11 was accepted, which is not in the array"


def test_dask_packs_the_parts_of_a_dataset(mini: str, tmp_path: Path) -> None:
    distributed = need("distributed")
    expected = whole(mini, tmp_path / "whole")
    target = tmp_path / "parts" / "x.tar"

    def pack(part: int) -> None:
        warpfeed.pack(mini, target, part=(part, 3), **OPTIONS)

    with distributed.Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as client:
        client.gather(client.map(pack, range(3), pure=False))
    warpfeed.merge(target)
    assert files(target.parent) == expected


def test_ray_packs_all_parts_although_a_worker_is_killed(mini: str, tmp_path: Path) -> None:
    ray = need("ray")
    import warpfeed.ray

    # The class is local, because Ray pickles local classes by value.
    class KillsAWorker:
        """A dataset in which the 84th read kills its process, in the middle of a part."""

        def __init__(self, mark: Path) -> None:
            self.mark = mark

        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> dict[str, Any]:
            # The first 64 reads are for planning.
            with open(self.mark, "ab") as file:
                file.write(b".")
                reads = file.tell()
            if reads == 64 + 20:
                os.kill(os.getpid(), signal.SIGKILL)
            return {"key": f"{index:03}", "bin": bytes([index]) * 1000}

    expected = whole(mini, tmp_path / "whole")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        reported: list[tuple[int, int]] = []
        target = tmp_path / "parts" / "x.tar"
        merged = warpfeed.ray.pack(mini, target, parts=2, progress=lambda *now: reported.append(now), **OPTIONS)
        assert files(target.parent) == expected and merged["samples"] == 64 and reported == [(1, 2), (2, 2)]

        target, mark = tmp_path / "killed" / "x.tar", tmp_path / "mark"
        warpfeed.ray.pack(KillsAWorker(mark), target, parts=2, **OPTIONS)
        assert mark.stat().st_size > 64 + 20 + 44, "no task was repeated"
        mark.write_bytes(b"." * 1000)
        warpfeed.pack(KillsAWorker(mark), tmp_path / "alive" / "x.tar", **OPTIONS)
        assert files(target.parent) == files(tmp_path / "alive")

        with pytest.raises(WarpfeedError, match="already exists"):
            warpfeed.ray.pack(mini, target, parts=2, **OPTIONS)
        with pytest.raises(ConfigError, match="at least 1"):
            warpfeed.ray.pack(mini, target, parts=0)
    finally:
        ray.shutdown()
