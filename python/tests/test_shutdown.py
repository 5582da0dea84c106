"""Tests that loaders and decoders shut down within seconds and without output from worker
processes, whether they are dropped or running at exit, and that a program can continue after it has
caught an error."""

from __future__ import annotations

import copy
import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from conftest import MINI, ROOT, Images, bmp, needs, run
from warpfeed import Augment, Decoder, Loader, WarpfeedError

OPTIONS: dict[str, Any] = {"batch_size": 4, "augment": Augment.resize(8, 8), "output": "numpy", "num_workers": 2}
IMAGE = bmp(8, 8, (1, 2, 3))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def until(condition: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@needs("linux", os.path.exists("/proc/self/task"))
def test_a_dropped_batcher_ends_its_threads_and_decoder() -> None:
    Decoder(max_batch=2, output="numpy", num_workers=1).close()
    gc.collect()
    before = threads()
    refs: list[Any] = []
    for turn in range(10):
        decoder = Decoder(max_batch=2, output="numpy", num_workers=1)
        batcher = decoder.dynamic_batcher(lambda decoded: [1] * len(decoded), max_delay_ms=0)
        future = batcher.submit([IMAGE])
        assert future.result(60) == [1]
        refs += [weakref.ref(decoder), weakref.ref(batcher)]
        if turn % 2:
            del future
        del decoder, batcher
        until(lambda: all(ref() is None for ref in refs))
    until(lambda: threads() <= before)


class Server:
    """A server that forms a reference cycle: the batcher calls a method of this object."""

    def __init__(self) -> None:
        self.batcher = Decoder(max_batch=2, output="numpy").dynamic_batcher(self.run, max_delay_ms=0)

    def run(self, decoded: Any) -> list[int]:
        return [3] * len(decoded)


def test_an_object_that_batches_its_own_method_is_collected() -> None:
    server = Server()
    assert server.batcher.submit([IMAGE]).result(60) == [3]
    ref = weakref.ref(server)
    del server

    def is_gone() -> bool:
        gc.collect()
        return ref() is None

    until(is_gone)


def test_waiting_requests_keep_the_batcher_alive() -> None:
    future = (
        Decoder(max_batch=2, output="numpy")
        .dynamic_batcher(lambda decoded: [5] * len(decoded), max_delay_ms=200)
        .submit([IMAGE])
    )
    assert future.result(60) == [5]


def test_closing_the_decoder_completes_waiting_requests() -> None:
    decoder = Decoder(max_batch=8, output="numpy")
    batcher = decoder.dynamic_batcher(lambda decoded: [0] * len(decoded), max_delay_ms=60_000)
    waiting, begun = batcher.submit([IMAGE]), time.monotonic()
    decoder.close()
    with pytest.raises(WarpfeedError, match="the decoder was dropped or closed"):
        waiting.result(30)
    assert time.monotonic() - begun < 20
    batcher._thread.join(30)
    assert not batcher._thread.is_alive()
    with pytest.raises(WarpfeedError, match="decoder was closed"):
        batcher.submit([IMAGE])


#: User functions that never return: the definition, the call, and the name in the warning.
STUCK = {
    "source": ("class Data:\n    def __len__(self): return 99\n    def __getitem__(self, i): here.set(); time.sleep(600)",
               "loader = warpfeed.Loader(Data(), output='numpy'); next(iter(loader))", "Data.__getitem__"),
    "image_transform": ("def stuck(image, rng): here.set(); time.sleep(600)",
                  "loader = warpfeed.Loader(sys.argv[1], output='numpy', image_transform=stuck, image_transform_processes=0); next(iter(loader))",
                  "image_transform=stuck"),
    "sampler": ("def stuck(epoch):\n    if epoch: here.set(); time.sleep(600)\n    return range(8)",
              "loader = warpfeed.Loader(sys.argv[1], output='numpy', sampler=stuck, epochs=9, batch_size=8); next(iter(loader)); "
              "here.wait(); time.sleep(600)", "sampler=stuck"),
    "dynamic_batcher": ("def stuck(decoded): here.set(); time.sleep(600)",
               "batcher = warpfeed.Decoder(output='numpy').dynamic_batcher(stuck, max_delay_ms=0); "
               "batcher.submit([sys.argv[2].encode('latin-1').replace(b'@', bytes(1))]).result()", "dynamic_batcher(stuck)"),
}  # fmt: skip


@pytest.mark.parametrize("what", STUCK)
def test_ctrl_c_ends_a_program_with_a_stuck_function(what: str, tmp_path: Path) -> None:
    defined, waits, name = STUCK[what]
    program = f"""
import logging, signal, sys, threading, time, warpfeed
signal.signal(signal.SIGINT, signal.default_int_handler)
logging.basicConfig(stream=sys.stdout)
here = threading.Event()
threading.Thread(target=lambda: (here.wait(), time.sleep(0.3), print("reached", flush=True)), daemon=True).start()
{defined}
{waits}
"""
    running = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", program, str(MINI), "not an image"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdout is not None and "reached" in running.stdout.readline()
    begun = time.monotonic()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert time.monotonic() - begun < 30 and "KeyboardInterrupt" in err
    assert f"exiting anyway: {name} is still running" in out, out
    assert running.returncode in (1, 130, -signal.SIGINT) and "Fatal" not in err and "abort" not in err.lower(), err


@needs("fork", hasattr(os, "fork"))
def test_a_forked_child_leaves_the_processes_of_its_parent() -> None:
    code = """
        import os, sys
        sys.path.insert(0, sys.argv[2])
        import functions, warpfeed
        if __name__ == "__main__":
            loader = warpfeed.Loader(sys.argv[1], batch_size=4, image_transform=functions.plain, image_transform_processes=2, output="numpy",
                                     augment=warpfeed.Augment.resize(32, 32))
            batches = iter(loader)
            next(batches)
            if os.fork() == 0:
                sys.exit(0)
            assert os.waitpid(-1, 0)[1] == 0
            assert sum(1 for _ in batches) + sum(1 for _ in loader) == 31
            loader.close()
    """
    process = run(code, str(MINI), str(ROOT / "python" / "tests"))
    assert process.returncode == 0 and "Traceback" not in process.stderr, process.stderr


def test_sigterm_ends_worker_processes_without_tracebacks(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
            import sys, time
            import numpy, warpfeed

            def slow(image, rng):
                time.sleep(0.02)
                return image

            if __name__ == "__main__":
                loader = warpfeed.Loader(sys.argv[1], batch_size=4, image_transform=slow, image_transform_processes=3, output="numpy")
                for _ in range(1000):
                    for batch in loader:
                        print("batch", flush=True)
        """)
    )
    running = subprocess.Popen(
        [sys.executable, str(program), str(MINI)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    for _ in range(5):
        assert "batch" in running.stdout.readline()
    running.send_signal(signal.SIGTERM)
    # The pipe reaches its end only after every worker process has exited.
    _, err = running.communicate(timeout=60)
    assert running.returncode == -signal.SIGTERM and "Traceback" not in err, err


@pytest.mark.parametrize("how", ["unguarded", "stdin", "no file"])
def test_a_program_that_cannot_be_imported_is_refused(how: str, tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import sys, warpfeed
        def f(image, rng):
            return image
        try:
            warpfeed.Loader(sys.argv[1], image_transform=f, image_transform_processes=1, output="numpy")
        except warpfeed.ConfigError as e:
            print("refused:", e)
    """)
    (tmp_path / "program.py").write_text(code)
    command = {"unguarded": [str(tmp_path / "program.py")], "stdin": ["-"], "no file": ["-c", code]}[how]
    done = subprocess.run(
        [sys.executable, *command, str(MINI)],
        input=code if how == "stdin" else "",
        capture_output=True,
        text=True,
        timeout=60,
    )
    advice = {
        "unguarded": "under 'if __name__ == \"__main__\":'",
        "stdin": "is not a file",
        "no file": "such as a notebook",
    }[how]
    assert done.stdout.startswith("refused: image_transform=f") and advice in done.stdout and "image_transform_processes=0" in done.stdout, done


class Bad(Images):
    def __getitem__(self, index: int) -> object:
        if index in (9, 30):
            raise ValueError(f"{index} is bad")
        return super().__getitem__(index)


def test_a_caught_sample_error_leaves_the_next_batch() -> None:
    loader = Loader(Bad(40), retries=0, **OPTIONS)
    for epoch in range(2):
        batches, came, failed = iter(loader), [], []
        while True:
            try:
                came.append(next(batches).batch_index)
            except StopIteration:
                break
            except WarpfeedError as e:
                failed.append(e.sample)
                state = loader.state_dict()
                assert (state["epoch"], state["batch"]) == (epoch, {9: 2, 30: 7}[e.sample or 0])
                again = Loader(Bad(40), retries=0, resume=state, **OPTIONS)
                with pytest.raises(WarpfeedError, match=f"{e.sample} is bad"):
                    next(iter(again))
        assert failed == [9, 30] and came == [0, 1, 3, 4, 5, 6, 8, 9] and loader.epoch == epoch + 1
    assert loader.stats()["batches"] == 16 and loader.stats()["samples"] == 64


def test_ids_and_keys_belong_to_the_samples_of_the_batch() -> None:
    loader = Loader(Bad(40), retries=0, max_skipped=5, shuffle=True, seed=3, **OPTIONS)
    seen = []
    for batch in loader:
        for row, (id, key, valid) in enumerate(zip(batch.ids, batch.sample_keys, batch.valid, strict=True)):
            assert batch.images[row, 0, 0].tolist() == [id % 256, id * 7 % 256, id * 31 % 256] and key == str(id)
            seen += [id] if valid else []
    assert sorted(seen) == [id for id in range(40) if id not in (9, 30)]
    assert sorted(error.sample for _, _, error in loader.sample_errors()) == [9, 30]  # type: ignore[attr-defined]


def test_a_failing_log_handler_loses_no_batch(capfd: pytest.CaptureFixture[str]) -> None:
    class Raises(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("the handler is broken")

    handler = Raises()
    logging.getLogger("warpfeed").addHandler(handler)
    try:
        loader = Loader(Bad(40), retries=0, max_skipped=5, **OPTIONS)
        assert [batch.batch_index for batch in loader] == list(range(10)) and len(loader.sample_errors()) == 2
    finally:
        logging.getLogger("warpfeed").removeHandler(handler)
    assert "the handler is broken" in capfd.readouterr().err


def raises(*_args: Any, **_named: Any) -> Any:
    raise KeyError("no such thing")


@pytest.mark.parametrize("option", ["sampler", "image_transform", "batch_transform", "collate", "data"])
def test_a_function_exception_is_the_cause_of_a_named_error(option: str) -> None:
    class Data(Images):
        __getitem__ = raises

    options: dict[str, Any] = {"retries": 0, **OPTIONS}
    options.update({"image_transform": {"image_transform_processes": 0}}.get(option, {}))
    data = Data(8) if option == "data" else Images(8)
    if option != "data":
        options[option] = raises
    with pytest.raises(WarpfeedError, match="KeyError: 'no such thing'") as raised:
        next(iter(Loader(data, **options)))
    error = raised.value
    assert isinstance(error.__cause__, KeyError) and error.kind == ("source" if option == "data" else "transform")
    location = {"sampler": "sampler=raises at epoch 0", "image_transform": "sample 0", "data": "sample 0"}
    assert location.get(option, "(raises) at batch 0 of epoch 0") in str(error), error


def test_an_exception_of_a_prefetched_order_is_the_cause() -> None:
    def order(epoch: int) -> Any:
        return raises() if epoch else range(8)

    loader = Loader(Images(8), sampler=order, epochs=5, **OPTIONS)
    list(loader)
    with pytest.raises(WarpfeedError, match="order at epoch 1: KeyError") as raised:
        list(loader)
    assert isinstance(raised.value.__cause__, KeyError)


def trained(stop: int | None, saved: tuple[int, dict[str, Any]] | None) -> tuple[list[tuple[int, int]], Any]:
    """Trains with an epoch counter of its own, at most until `stop` batches. Returns the positions
    of the batches, and the counter with the loader's state."""
    loader, seen, state = Loader(Images(16), shuffle=True, seed=3, **OPTIONS), [], None
    first = 0
    if saved is not None:
        first = saved[0]
        loader.load_state_dict(saved[1])
    for epoch in range(first, 3):
        loader.set_epoch(epoch)
        for batch in loader:
            seen.append((batch.epoch, batch.batch_index))
            state = epoch, copy.deepcopy(loader.state_dict())
            if len(seen) == stop:
                return seen, state
    return seen, state


def test_a_program_with_its_own_counter_resumes_after_any_batch() -> None:
    complete, _ = trained(None, None)
    assert complete == [(epoch, number) for epoch in range(3) for number in range(4)]
    for stop in range(1, 13):
        before, saved = trained(stop, None)
        after, _ = trained(None, saved)
        assert before + after == complete, f"stopped after {stop} batches"
