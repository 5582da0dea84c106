"""Tests ``image_transform=f``, a Python function that worker processes call for each image. The
result must depend only on (seed, epoch, sample), exceptions must name the sample and keep their
traceback, a killed process must cause an error, and the processes must end with the loader."""

from __future__ import annotations

import errno
import logging
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import traceback
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warpfeed
from conftest import Images, contents, need, ran
from functions import (
    dies, fails, float_result, in_place, keeps, no_result, noise, pid, plain, slow, small_result, stuck, with_globals,
)  # fmt: skip
from warpfeed import Augment, ConfigError, Loader, Mix, WarpfeedError

OPTIONS: dict[str, Any] = {"batch_size": 16, "augment": Augment.train(32), "shuffle": True, "seed": 3, "output": "numpy"}


def alive(pids: list[int]) -> list[int]:
    results = []
    for process in pids:
        try:
            with open(f"/proc/{process}/stat", encoding="ascii") as stat:
                if stat.read().rpartition(")")[2].split()[0] != "Z":
                    results.append(process)
        except OSError:
            pass
    return results


def pids_of(loader: Loader) -> list[int]:
    assert loader._image_transform is not None
    return [int(process.pid or 0) for process in loader._image_transform._processes]


def wait_until_gone(pids: list[int]) -> None:
    until = time.monotonic() + 60
    while alive(pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(pids)


def test_batches_do_not_depend_on_processes_or_workers(mini: str) -> None:
    want = contents(Loader(mini, image_transform=noise, image_transform_processes=0, **OPTIONS), 2)
    assert want != contents(Loader(mini, **OPTIONS), 2)
    for processes, workers in [(1, 3), (2, 2)]:
        with Loader(mini, image_transform=noise, image_transform_processes=processes, num_workers=workers, **OPTIONS) as loader:
            assert contents(loader, 2) == want
    assert want[0][3]["image"] != want[4][3]["image"]
    assert contents(Loader(mini, image_transform=plain, image_transform_processes=1, **OPTIONS)) == contents(Loader(mini, **OPTIONS))


def test_the_run_continues_after_a_resume(mini: str) -> None:
    options = {**OPTIONS, "image_transform": noise, "image_transform_processes": 2}
    loader = Loader(mini, **options)
    unbroken = contents(loader, 2)
    first = Loader(mini, **options)
    it = iter(first)
    for _ in range(3):
        next(it)
    assert contents(Loader(mini, resume=first.state_dict(), **{**options, "image_transform_processes": 1}), 2) == unbroken[3:]
    assert contents(Loader(mini, **options).epoch_from(1, 2)) == unbroken[6:]


def test_the_function_gets_a_copy_and_returns_the_batch(mini: str) -> None:
    want = [255 - images[:, ::-1] for images, _ in Loader(mini, **OPTIONS)]
    got = [images for images, _ in Loader(mini, image_transform=in_place, image_transform_processes=1, **OPTIONS)]
    assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True))
    # `keeps` fails if a later sample overwrites an image that the function keeps.
    images = np.concatenate([images for images, _ in Loader(mini, image_transform=keeps, image_transform_processes=1, num_workers=1, **OPTIONS)])
    sources = np.concatenate([images for images, _ in Loader(mini, **OPTIONS)])
    assert np.array_equal(images, sources)


def test_global_generators_are_seeded_for_each_sample(mini: str) -> None:
    one, two = (contents(Loader(mini, image_transform=with_globals, image_transform_processes=n, **OPTIONS)) for n in (1, 2))
    assert one == two != contents(Loader(mini, **OPTIONS))


LAZY = """
import sys
import warpfeed
from functions_lazy import f

if __name__ == "__main__":
    options = dict(batch_size=16, augment=warpfeed.Augment.train(8), output="numpy", shuffle=True, seed=1)
    sums = []
    for processes in (1, 2):
        with warpfeed.Loader(sys.argv[1], image_transform=f, image_transform_processes=processes, num_workers=2, **options) as loader:
            sums.append([int(image.sum()) for images, _ in loader for image in images])
    assert sums[0] == sums[1], [a == b for a, b in zip(*sums)]
"""
LAZY_MODULE = """
def f(image, rng):
    import numpy as np

    return np.full_like(image, np.random.randint(256))
"""


def test_modules_that_the_first_call_imports_are_seeded(mini: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(LAZY)
    (tmp_path / "functions_lazy.py").write_text(LAZY_MODULE)
    subprocess.run([sys.executable, str(tmp_path / "main.py"), mini], check=True, timeout=120)


def test_the_function_runs_before_normalization_and_mixing(mini: str) -> None:
    augment = Augment.train(32).erase(warpfeed.RandomErasing(0.5)).mix(Mix.mixup(0.3))
    options = {
        **OPTIONS, "augment": augment, "soft_labels": (4, 0.1), "normalize": "imagenet", "dtype": "f16",
    }  # fmt: skip
    assert contents(Loader(mini, image_transform=plain, image_transform_processes=1, **options)) == contents(Loader(mini, **options))


@pytest.mark.parametrize("processes", [0, 2])
def test_an_exception_names_the_sample_and_carries_its_traceback(processes: int) -> None:
    options = {"batch_size": 8, "augment": Augment.pass_through(8, 8), "output": "numpy", "image_transform_processes": processes}
    with pytest.raises(WarpfeedError, match=r"sample 7 \(7\): transform: ValueError: seven is wrong$") as e:
        list(Loader(Images(8), image_transform=fails, **options))
    cause = e.value.__cause__
    assert isinstance(cause, ValueError) and e.value.sample == 7 and e.value.kind == "transform"
    traceback_text = str(cause.__cause__) if processes else "".join(traceback.format_tb(cause.__traceback__))
    assert "in inner" in traceback_text and "in fails" in traceback_text
    with pytest.raises(WarpfeedError, match=r"sample 9 .*9 and 10") as e:
        list(Loader(Images(16), image_transform=fails, subset=[8, 9, 10], **options))
    # The process must continue with the next sample.
    loader = Loader(Images(8), image_transform=fails, max_skipped=1, **options)
    [batch] = loader
    assert batch.valid.tolist() == [True] * 7 + [False] and len(loader.sample_errors()) == 1


@pytest.mark.parametrize(
    ("f", "output"),
    [
        (float_result, r"numpy.ndarray of float32 of shape \(32, 32, 3\): expected .* of uint8 of shape \(32, 32, 3\)"),
        (small_result, r"numpy.ndarray of uint8 of shape \(16, 32, 3\): expected"),
        (no_result, "NoneType: expected"),
    ],
)
def test_a_result_that_is_not_an_image_fails_with_its_value(mini: str, f: Any, output: str) -> None:
    with pytest.raises(WarpfeedError, match=f"sample .*TypeError: image_transform returned {output}"):
        list(Loader(mini, image_transform=f, image_transform_processes=0, **OPTIONS))


def test_a_function_that_cannot_run_fails_on_opening(mini: str) -> None:
    with pytest.raises(ConfigError, match="image_transform=.*<lambda>: the function cannot be pickled .*image_transform_processes=0"):
        Loader(mini, image_transform=lambda image, rng: image, **OPTIONS)
    with pytest.raises(ConfigError, match="image_transform_processes=2 has no effect without image_transform=f"):
        Loader(mini, image_transform_processes=2, **OPTIONS)
    with pytest.raises(ConfigError, match="image_transform_processes=5000: expected at most 1024"):
        Loader(mini, image_transform=plain, image_transform_processes=5000, **OPTIONS)
    with pytest.raises(TypeError, match="image_transform=3: expected a function"):
        Loader(mini, image_transform=3, **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(WarpfeedError):
        Loader("/nowhere", image_transform=plain, image_transform_processes=1, **OPTIONS)
    assert contents(Loader(mini, image_transform=lambda image, rng: image, image_transform_processes=0, **OPTIONS))


def test_worker_processes_need_no_folder_for_temporary_files(mini: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("[Errno 2] No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    if hasattr(os, "memfd_create"):
        expected = contents(Loader(mini, image_transform=plain, image_transform_processes=0, **OPTIONS))
        assert contents(Loader(mini, image_transform=plain, image_transform_processes=1, **OPTIONS)) == expected
        monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(ConfigError, match="need a temporary file: .*Set TMPDIR to a writable folder, or pass image_transform_processes=0"):
        Loader(mini, image_transform=plain, image_transform_processes=1, **OPTIONS)


def test_a_torchvision_step_is_refused_with_the_right_option(mini: str) -> None:
    class Compose:
        def __call__(self, image: Any) -> Any:
            return image

    Compose.__module__ = "torchvision.transforms.transforms"
    with pytest.raises(ConfigError, match=r"torchvision transforms expect a tensor.*batch_transform=\["):
        Loader(mini, image_transform=Compose())


def test_a_process_that_is_killed_fails_with_its_name(mini: str) -> None:
    start = time.monotonic()
    with pytest.raises(WarpfeedError, match=r"sample .*worker process 0 \(pid \d+\) of image_transform exited: it was"):
        list(Loader(mini, image_transform=dies, image_transform_processes=1, **OPTIONS))
    loader = Loader(mini, image_transform=slow, image_transform_processes=2, **OPTIONS)
    pids = pids_of(loader)
    it = iter(loader)
    next(it)
    for process in pids:
        os.kill(process, signal.SIGKILL)
    with pytest.raises(WarpfeedError, match=r"worker process [01] \(pid (%s)\)" % "|".join(map(str, pids))):
        list(it)
    with pytest.raises(WarpfeedError, match="of image_transform exited"):
        list(loader)
    assert time.monotonic() - start < 60


def test_processes_end_with_the_loader(mini: str) -> None:
    loader = Loader(mini, image_transform=pid, image_transform_processes=2, **OPTIONS)
    pids = pids_of(loader)
    assert len(set(pids)) == 2 and len(list(loader)) == 4
    loader.close()
    wait_until_gone(pids)
    loader = Loader(mini, image_transform=pid, image_transform_processes=2, **OPTIONS)
    pids = pids_of(loader)
    next(iter(loader))
    del loader
    wait_until_gone(pids)


class Alarm(Exception):
    pass


def in_stuck_calls(loader: Loader, folder: Path) -> None:
    """Requests a batch, and abandons the wait once a process is inside `stuck`."""
    until = time.monotonic() + 60

    def give_up(*_: object) -> None:
        if list(folder.iterdir()) or time.monotonic() > until:
            raise Alarm

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(Alarm):
            next(iter(loader))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert list(folder.iterdir())


@pytest.mark.parametrize("how", ["close", "drop"])
def test_closing_the_loader_ends_a_stuck_function(
    mini: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("WARPFEED_STUCK", str(tmp_path))
    loader = Loader(mini, image_transform=stuck, image_transform_processes=3, num_workers=3, **OPTIONS)
    pids = pids_of(loader)
    in_stuck_calls(loader, tmp_path)
    assert len(alive(pids)) == 3
    # The function never returns. `SIGALRM` ends the test if closing waits for the function.
    signal.alarm(120)
    if how == "close":
        loader.close()
    del loader
    signal.alarm(0)
    assert not alive(pids)


def test_a_forked_child_keeps_no_process_alive(mini: str) -> None:
    loader = Loader(mini, image_transform=plain, image_transform_processes=2, **OPTIONS)
    pids = pids_of(loader)
    list(loader)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        assert loader._image_transform is not None
        # `close` would kill even processes that hang.
        loader._image_transform.native.stop()
        wait_until_gone(pids)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_the_processes_share_memory_that_the_plan_counts(mini: str) -> None:
    loader = Loader(mini, image_transform=plain, image_transform_processes=3, num_workers=2, **OPTIONS)
    plan = loader.memory_plan()
    assert plan["transform_bytes"] == 3 * 32 * 32 * 3 and "MiB for transforms" in str(plan)
    without = Loader(mini, num_workers=2, **OPTIONS).memory_plan()
    assert without["transform_bytes"] == 0 and "transforms" not in str(without)
    # Each worker also needs a buffer for the image passed to the function.
    assert plan["scratch_bytes"] == without["scratch_bytes"] + plan["transform_bytes"] + 2 * 32 * 32 * 3


def test_memory_that_cannot_be_shared_fails_with_the_cause(mini: str) -> None:
    output = ran(
        """
        import resource, sys
        import warpfeed
        sys.path.insert(0, sys.argv[2])
        from functions import plain

        if __name__ == "__main__":
            loader = warpfeed.Loader(sys.argv[1], image_transform=plain, image_transform_processes=1, batch_size=16, output="numpy",
                                     augment=warpfeed.Augment.train(32))
            process = loader._image_transform._processes[0]
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
            try:
                list(loader)
            except warpfeed.WarpfeedError as e:
                print(e, process.is_alive())
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            print(len(list(loader)))
        """,
        mini, os.path.dirname(__file__),
    ).splitlines()  # fmt: skip
    assert "cannot allocate 3072 bytes of shared memory for worker process 0 of image_transform" in output[0]
    assert output[0].endswith("True") and output[1] == "4"


PROGRAM = """
import os, signal, sys, time
from pathlib import Path
import warpfeed
from functions import {f}

if __name__ == "__main__":
    # Shells start background jobs with SIGINT ignored, and child processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    loader = warpfeed.Loader(sys.argv[1], batch_size=16, image_transform={f}, image_transform_processes=2, output="numpy",
                             augment=warpfeed.Augment.train(32))
    print(*[process.pid for process in loader._image_transform._processes], flush=True)
    {then}
"""


def started(tmp_path: Path, mini: str, f: str, then: str) -> tuple[subprocess.Popen[str], list[int]]:
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM).format(f=f, then=then))
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), mini], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path}, start_new_session=True,
    )  # fmt: skip
    assert program.stdout is not None
    return program, [int(one) for one in program.stdout.readline().split()]


def test_ctrl_c_ends_a_wait_for_the_function(
    mini: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    monkeypatch.setenv("WARPFEED_STUCK", str(calls))
    program, pids = started(tmp_path, mini, "stuck", "next(iter(loader))")
    wait_for_calls(calls, 1)
    os.killpg(program.pid, signal.SIGINT)
    _, output = program.communicate(timeout=90)
    assert program.returncode != 0 and "KeyboardInterrupt" in output
    wait_until_gone(pids)


def test_processes_end_when_the_program_is_killed(mini: str, tmp_path: Path) -> None:
    program, pids = started(tmp_path, mini, "plain", "list(loader); print('ready', flush=True); time.sleep(60)")
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    assert len(alive(pids)) == 2
    program.kill()
    program.wait()
    wait_until_gone(pids)


def wait_for_calls(folder: Path, count: int) -> None:
    until = time.monotonic() + 60
    while len(list(folder.iterdir())) < count and time.monotonic() < until:
        time.sleep(0.05)
    assert len(list(folder.iterdir())) >= count


def test_processes_end_with_a_killed_program_that_has_forked(
    mini: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    monkeypatch.setenv("WARPFEED_STUCK", str(calls))
    then = "os.fork() or time.sleep(30) or os._exit(0); next(iter(loader))"
    program, pids = started(tmp_path, mini, "stuck", then)
    wait_for_calls(calls, 1)
    program.kill()
    program.wait()
    wait_until_gone(pids)
    os.killpg(program.pid, signal.SIGKILL)


STARTS = """
import os, pathlib, time
import warpfeed._image_transform
from functions import Large

folder, until = pathlib.Path(__file__).parent / "begun", time.monotonic() + 60
if __name__ == "__main__":
    folder.mkdir()
    function = warpfeed._image_transform.ImageTransform(Large(), 4)
else:
    (folder / str(os.getpid())).touch()
while len(list(folder.iterdir())) < 4:
    assert time.monotonic() < until, "the other processes did not start"
    time.sleep(0.01)
if __name__ == "__main__":
    print("all at once")
    function.end()
"""


def test_processes_start_at_the_same_time(tmp_path: Path) -> None:
    # program.py blocks until all four processes have imported it.
    (tmp_path / "program.py").write_text(STARTS)
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    output = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], env={**os.environ, "PYTHONPATH": path}, check=True, text=True,
        capture_output=True, timeout=120,
    ).stdout  # fmt: skip
    assert output == "all at once\n"


def test_a_program_ends_while_its_loader_is_open(mini: str, tmp_path: Path) -> None:
    program, pids = started(tmp_path, mini, "plain", "next(iter(loader))")
    _, output = program.communicate(timeout=60)
    assert program.returncode == 0, output
    wait_until_gone(pids)


def test_the_loader_reports_the_cost_of_the_function(mini: str, caplog: pytest.LogCaptureFixture) -> None:
    # Without `epochs`, samples of the next epoch would be prepared and counted.
    loader = Loader(mini, image_transform=slow, image_transform_processes=2, subset=range(8), epochs=1, **{**OPTIONS, "batch_size": 4})
    list(loader)
    cost = loader.image_transform_cost()
    assert cost["calls"] == 8 and cost["in_function"] >= 1.6 and cost["transfer"] >= 0
    with caplog.at_level(logging.INFO, "warpfeed"):
        loader.close()
    assert "image_transform=slow: 8 calls in 2 processes, " in caplog.text and "ms each" in caplog.text
    assert Loader(mini, **OPTIONS).image_transform_cost() == {}


def test_pipelines_of_albumentations_run_unchanged(mini: str) -> None:
    a = need("albumentations")
    pipeline = a.Compose([
        a.HorizontalFlip(p=0.5), a.RandomBrightnessContrast(p=0.8), a.OneOf([a.GaussNoise(p=1), a.Blur(p=1)], p=0.9),
        a.CoarseDropout(p=0.5),
    ])  # fmt: skip
    results = [contents(Loader(mini, image_transform=pipeline, image_transform_processes=n, **OPTIONS), 2) for n in (0, 1, 2)]
    assert results[0] == results[1] == results[2]
    assert results[0][0][3]["image"] != results[0][4][3]["image"]
    invalid = a.Compose([a.Normalize()])
    with pytest.raises(WarpfeedError, match="image_transform returned numpy.ndarray of float32 .*leave Normalize"):
        list(Loader(mini, image_transform=invalid, image_transform_processes=1, **OPTIONS))
    with pytest.raises(WarpfeedError, match=r"of shape \(16, 16, 3\)"):
        list(Loader(mini, image_transform=a.Compose([a.Resize(16, 16)]), image_transform_processes=1, **OPTIONS))


def test_an_unpickled_loader_has_the_same_image_transform(mini: str) -> None:
    output = ran(
        """
        import pickle, sys
        import warpfeed
        sys.path.insert(0, sys.argv[2])
        from functions import noise
        from conftest import contents

        if __name__ == "__main__":
            options = {"batch_size": 16, "augment": warpfeed.Augment.train(32), "shuffle": True, "seed": 3, "output": "numpy"}
            loader = warpfeed.Loader(sys.argv[1], image_transform=noise, image_transform_processes=1, **options)
            again = pickle.loads(pickle.dumps(loader))
            print(contents(loader) == contents(again))
        """,
        mini, os.path.dirname(__file__),
    )  # fmt: skip
    assert output.strip() == "True"


@pytest.mark.parametrize(
    "kind",
    [warpfeed.Mask("u8"), warpfeed.DenseMap(), warpfeed.Keypoints(4), warpfeed.Boxes(4), warpfeed.Geometry()],
    ids=lambda kind: type(kind).__name__,
)
def test_annotations_refuse_a_pixel_moving_transform(mini: str, kind: Any) -> None:
    options: dict[str, Any] = {**OPTIONS, "image_transform": plain, "image_transform_processes": 0, "fields": {"target": kind}}
    for moves in ({}, {"image_transform_moves_pixels": True}):
        with pytest.raises(ConfigError, match=r"fields=\{'target': .*image_transform=f.*image_transform_moves_pixels"):
            Loader(mini, **options, **moves)


def test_annotations_accept_a_pixel_preserving_transform(mini: str) -> None:
    fields = {"image": warpfeed.Image(), "where": warpfeed.Geometry()}
    options: dict[str, Any] = {**OPTIONS, "fields": fields}
    loader = Loader(mini, image_transform=plain, image_transform_processes=0, image_transform_moves_pixels=False, **options)
    got, want = next(iter(loader)), next(iter(Loader(mini, **options)))
    assert all(np.array_equal(got[name], want[name]) for name in fields)
    with pytest.raises(ConfigError, match="image_transform_moves_pixels=False has no effect without image_transform=f"):
        Loader(mini, image_transform_moves_pixels=False, **OPTIONS)


def test_an_image_that_could_not_be_mapped_is_mapped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from warpfeed import _image_transform_process

    class Descriptor:
        def __init__(self, file: int) -> None:
            self.file = file

        def detach(self) -> int:
            return os.dup(self.file)

    maps: list[int] = []

    def flaky(file: int, length: int) -> mmap.mmap:
        maps.append(length)
        if len(maps) == 2:
            raise OSError(errno.ENOMEM, "no memory for a map")
        return mmap.mmap(file, length)

    monkeypatch.setattr(_image_transform_process, "mmap", types.SimpleNamespace(mmap=flaky))
    # `serve` runs in a thread of this process, where some calls make no sense.
    monkeypatch.setattr(_image_transform_process, "signal", types.SimpleNamespace(signal=lambda *_: None, SIGINT=None, SIG_IGN=None))
    monkeypatch.setattr(_image_transform_process, "_exit_with_loader", lambda loader: None)
    for name in ("_one_thread", "_seed_globals"):
        monkeypatch.setattr(_image_transform_process, name, lambda *_: None)
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as shared, tempfile.TemporaryFile() as function, ours, theirs:
        shared.truncate(8 * 8 * 3)
        pickled = pickle.dumps(plain)
        function.write(pickled)
        function.flush()
        ends = (Descriptor(theirs.fileno()), Descriptor(shared.fileno()), Descriptor(function.fileno()))
        server = threading.Thread(target=_image_transform_process.serve, args=(*ends, len(pickled), os.getppid()))
        server.start()
        ours.settimeout(30)
        answers: list[object] = []
        for size in (4, 8, 8, 4):
            ours.sendall(_image_transform_process._REQUEST.pack(size, size, 1, 2))
            status, length, _ = _image_transform_process._RESPONSE.unpack(ours.recv(_image_transform_process._RESPONSE.size, socket.MSG_WAITALL))
            answers.append(str(_image_transform_process.unpack_exception(ours.recv(length, socket.MSG_WAITALL))) if status else "made")
        ours.shutdown(socket.SHUT_RDWR)
        server.join(30)
        assert not server.is_alive()
    assert answers == ["made", "[Errno 12] no memory for a map", "made", "made"]
    assert maps == [48, 192, 192]
