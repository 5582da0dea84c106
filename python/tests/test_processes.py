"""Tests that Ctrl-C interrupts a wait, that other threads run meanwhile, that a loader in a forked
process raises an error, that a spawned process opens it again, that no thread is left after an
exception, and that the interpreter can exit in the middle of an epoch."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import numpy as np
import pytest
from conftest import needs, ran, run
from warpfeed import Augment, Loader, NdArray, WarpfeedError

SLOW = """
import sys, threading, time, warpfeed
class Slow:
    def __len__(self): return 1000
    def __getitem__(self, index):
        if index >= 8:
            time.sleep({seconds})
        return open(sys.argv[1], "rb").read(), 0
loader = warpfeed.Loader(Slow(), batch_size=4, num_workers=2, augment=warpfeed.Augment.train(32), output="numpy")
"""


@pytest.fixture
def image(mini: str) -> str:
    for folder, _, files in os.walk(mini):
        for file in files:
            if file.endswith((".jpg", ".png")):
                return os.path.join(folder, file)
    raise AssertionError("no image")


@needs("signals", sys.platform != "win32")
def test_ctrl_c_while_waiting_loses_no_batch(image: str) -> None:
    # After the first eight samples, the source waits until the interrupt has been handled.
    waits = "import threading\ngo = threading.Event()" + SLOW.replace("time.sleep({seconds})", "go.wait(600)")
    code = waits + textwrap.dedent(
        """
        import signal
        # Shells make background jobs ignore this signal, so restore its handler.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        it = iter(loader)
        try:
            print(next(it).batch_index, next(it).batch_index, flush=True)
            next(it)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        go.set()
        print(next(it).batch_index)
        """
    )
    program = subprocess.Popen([sys.executable, "-c", code, image], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None and program.stdout.readline() == "0 1\n"
    time.sleep(0.3)
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=60)
    assert out == "interrupted\n2\n" and program.returncode == 0


def test_other_threads_run_during_a_wait(image: str) -> None:
    out = ran(
        # So long that the third batch is not ready before it is requested.
        SLOW.format(seconds=1.5)
        + textwrap.dedent(
            """
            turns = 0
            def count():
                global turns
                while True:
                    turns += 1
                    time.sleep(0.001)
            threading.Thread(target=count, daemon=True).start()
            it = iter(loader)
            next(it), next(it)
            before = turns
            next(it)
            print(turns - before)
            """
        ),
        image,
    )
    assert int(out) > 50


@needs("fork", hasattr(os, "fork"))
def test_a_forked_child_fails_without_disturbing_its_parent(mini: str) -> None:
    out = ran(
        """
        import os, sys, warpfeed
        loader = warpfeed.Loader(sys.argv[1], batch_size=8, augment=warpfeed.Augment.train(32), output="numpy")
        it = iter(loader)
        kept = next(it)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            nexts = [lambda: next(it), lambda: next(iter(loader))]
            for call in (*nexts, loader.stats, loader.state_dict, lambda: len(loader)):
                try:
                    call()
                    print("no error")
                except warpfeed.WarpfeedError as e:
                    assert "worker threads do not survive fork" in str(e) and e.kind == "config", e
            del it, kept, loader
            print("failed as expected", flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(len(list(it)))
        """,
        mini,
    )
    assert out == "failed as expected\n7\n"


def in_a_child(loader: Loader, queue) -> None:  # type: ignore[no-untyped-def]
    queue.put([np.asarray(images).tobytes() for images, _ in loader])


def test_spawn_opens_the_loader_with_its_arguments(mini: str) -> None:
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    augment = Augment.train(32).scale(0.5, 1.0)
    loader = Loader(mini, batch_size=16, shuffle=True, seed=5, augment=augment, output="numpy", fields=None)
    next(iter(loader))
    queue = context.Queue()
    child = context.Process(target=in_a_child, args=(loader, queue))
    child.start()
    there = queue.get(timeout=60)
    child.join()
    assert there == [images.tobytes() for images, _ in loader], "the child must deliver the next epoch of this process"


def test_options_errors_and_batches_can_be_pickled_and_printed(mini: str) -> None:
    import warpfeed

    parts = [
        Augment.train(224).scale(0.25, 1.0).jitter(warpfeed.ColorJitter(0.4, hue=0.1)),
        Augment.eval(256, 224).erase(warpfeed.RandomErasing(0.5).value(0, 1, 2)),
        warpfeed.Mix.either(0.2, 1.0).probability(0.5),
        NdArray("f32", [768]),
        WarpfeedError("x", "decode", 3, "key", "path", 2),
    ]
    for part in parts:
        again = pickle.loads(pickle.dumps(part))
        assert repr(again) == repr(part) and type(again) is type(part)
        if not isinstance(part, Exception):
            assert again == part and hash(again) == hash(part)
    assert repr(parts[0]) == "Augment.train(224).scale(0.25, 1.0).jitter(ColorJitter(brightness=0.4, hue=0.1))"
    loader = Loader(mini, batch_size=4, augment=parts[0], output="numpy")
    assert eval(repr(loader), {"Loader": Loader, **vars(warpfeed)}).batch_size == 4
    batch = next(iter(loader))
    assert isinstance(pickle.loads(pickle.dumps(batch)), tuple)


@needs("linux", os.path.isdir("/proc/self/task"))
def test_an_exception_in_the_loop_leaves_no_thread_behind(packed: str) -> None:
    # In a child process, threads of other tests do not change the number of threads.
    out = ran(
        """
        import os, sys, time, warpfeed
        def threads():
            return len(os.listdir("/proc/self/task"))
        def loop():
            augment = warpfeed.Augment.train(32)
            loader = warpfeed.Loader(sys.argv[1], batch_size=4, num_workers=3, augment=augment, output="numpy")
            for _ in loader:
                assert threads() >= before + 3
                raise ValueError("of the step")
        # Create the threads that all loaders of the process share.
        first = warpfeed.Loader(sys.argv[1], batch_size=4, output="numpy")
        next(iter(first))
        first.close()
        before = threads()
        for _ in range(5):
            try:
                loop()
            except ValueError as e:
                print(e)
        deadline = time.monotonic() + 60
        while threads() != before and time.monotonic() < deadline:
            time.sleep(0.05)
        print(threads() - before)
        """,
        packed,
    )
    assert out == "of the step\n" * 5 + "0\n"


@pytest.mark.parametrize(
    "ending", ["", "raise ValueError('x')", "sys.exit(3)", "del loader", "it = None", "keep = loader, it"]
)
@pytest.mark.parametrize("source", ["folder", "python"])
def test_the_interpreter_ends_cleanly_mid_epoch(mini: str, image: str, ending: str, source: str) -> None:
    begin = SLOW.format(seconds=0.2) if source == "python" else (
        "import sys, warpfeed\naugment = warpfeed.Augment.train(32)\n"
        "loader = warpfeed.Loader(sys.argv[2], batch_size=4, augment=augment, output='numpy')\n"
    )  # fmt: skip
    process = run(
        f"{begin}\nit = iter(loader)\nfirst = next(it)\nprint('begun', flush=True)\n{ending}\n",
        image,
        mini,
        timeout=60,
    )
    expected = {"raise ValueError('x')": 1, "sys.exit(3)": 3}.get(ending, 0)
    assert (process.returncode, process.stdout) == (expected, "begun\n"), process.stderr
    assert ("ValueError: x" in process.stderr) == (expected == 1) and "Fatal" not in process.stderr, process.stderr


def test_a_waiting_daemon_thread_does_not_delay_exit(image: str) -> None:
    code = SLOW.format(seconds=0.3) + (
        "def work():\n    for _ in loader: pass\n"
        "threading.Thread(target=work, daemon=True).start()\ntime.sleep(0.3)\nprint('ends')\n"
    )
    process = run(code, image, timeout=60)
    assert process.returncode == 0 and process.stdout == "ends\n", process.stderr


def test_a_loader_in_a_reference_cycle_is_collected(packed: str) -> None:
    import gc
    import weakref

    loader = Loader(packed, batch_size=4, augment=Augment.train(32), output="numpy")
    loader.itself = loader  # type: ignore[attr-defined]
    it = iter(loader)
    next(it)
    gone = weakref.ref(loader)
    del loader, it
    gc.collect()
    assert gone() is None


def test_outputs_other_than_torch_do_not_import_it(mini: str, torch: Any) -> None:
    code = """
        import sys, warpfeed
        for output in ("numpy", "dlpack"):
            next(iter(warpfeed.Loader(sys.argv[1], output=output, num_workers=1)))
        print("torch" in sys.modules)
    """
    assert ran(code, mini) == "False\n"
