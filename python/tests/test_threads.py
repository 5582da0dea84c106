"""Tests loaders and batches on several threads, with and without the GIL. Also tests Ctrl-C and
signal handlers during long calls, and the garbage collection of loaders."""

from __future__ import annotations

import gc
import os
import signal
import sysconfig
import textwrap
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
import warpfeed
from conftest import Images, contents, needs, ran
from warpfeed import Augment, Loader, WarpfeedError

THREADS = 8
FREE = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
OPTIONS: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 3, "augment": Augment.train(32), "output": "numpy"}


def run_concurrently(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Runs `work(number)` on threads that start together."""
    begin = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(number: int) -> None:
        begin.wait()
        try:
            results[number] = work(number)
        except BaseException as e:
            results[number] = e

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    for value in results:
        if isinstance(value, BaseException):
            raise value
    return results


@needs("free-threading", FREE)
def test_importing_and_loading_keep_the_gil_disabled(packed: str) -> None:
    out = ran(
        """
        import sys, warpfeed
        for images, labels in warpfeed.Loader(sys.argv[1], batch_size=8, output="numpy"):
            pass
        print(sys._is_gil_enabled())
        """,
        packed,
    )
    assert out == "False\n"


def test_each_thread_may_have_a_loader(packed: str) -> None:
    expected = contents(Loader(packed, **OPTIONS), epochs=3)
    for actual in run_concurrently(lambda _: contents(Loader(packed, num_workers=1, **OPTIONS), epochs=3)):
        assert actual == expected


def test_threads_that_share_an_iterator_share_its_epoch(packed: str) -> None:
    loader = Loader(packed, **OPTIONS)
    for epoch in range(20):
        it = iter(loader)
        parts = run_concurrently(lambda _, it=it: [(batch.epoch, batch.ids) for batch in it])
        seen = [batch for part in parts for batch in part]
        assert {number for number, _ in seen} == {epoch}
        assert sorted(id for _, ids in seen for id in ids) == list(range(64))


def test_threads_read_the_same_batch_concurrently(packed: str) -> None:
    loader = Loader(packed, **{**OPTIONS, "output": "dlpack", "copy": False}, prefetch=2)
    expected = [images.copy() for images, _ in Loader(packed, **OPTIONS)]
    for batch, requested in zip(loader, expected, strict=True):
        shared = [batch]
        del batch

        def read(number: int, shared: list[Any] = shared) -> tuple[Any, list[int], list[str]]:
            tensor = shared[0].images
            array = np.from_dlpack(tensor) if number % 2 else np.asarray(tensor)
            return array, shared[0].ids, shared[0].sample_keys

        arrays = run_concurrently(read)
        for array, ids, keys in arrays:
            assert np.array_equal(array, requested) and (ids, keys) == arrays[0][1:]
        assert len({array.ctypes.data for array, _, _ in arrays}) == 1
        # The last drop must release the slot on any thread.
        run_concurrently(lambda number, arrays=arrays: arrays.__setitem__(number, None))
        del arrays, array, shared


def test_a_loader_answers_queries_while_other_threads_iterate(packed: str) -> None:
    loader = Loader(packed, **OPTIONS, num_workers=2)
    ends = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            samples = sum(len(images) for _ in range(30) for images, _ in loader)
            ends.set()
            return samples
        queries = 0
        while not ends.is_set() or queries == 0:
            state, stats = loader.state_dict(), loader.stats()
            assert state and stats["samples"] >= 0 and str(loader.verdict())
            assert len(loader) == 8 and loader.classes and loader.dataset_index(3) == 0
            queries += 1
        return queries

    samples, *queries = run_concurrently(work)
    assert samples == 30 * 64 and min(queries) > 0


def test_threads_that_begin_epochs_exclude_each_other(packed: str) -> None:
    called = []

    def order(epoch: int) -> list[int]:
        called.append(epoch)
        return list(range(epoch % 7, 64))

    loader = Loader(packed, sampler=order, **{**OPTIONS, "shuffle": False})

    def work(_: int) -> int:
        begun = 0
        for _ in range(20):
            try:
                for batch in loader:
                    begun += batch.batch_index == 0
                    assert len(batch.ids) <= 8 and batch.ids[0] >= batch.epoch % 7
            except WarpfeedError as e:
                assert "a newer iterator" in str(e)
        return begun

    assert 1 <= sum(run_concurrently(work)) <= 20 * THREADS
    assert loader.epoch == 20 * THREADS and set(called) <= set(range(20 * THREADS + 8))


def test_threads_open_and_close_loaders(packed: str) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            with Loader(packed, num_workers=1, **OPTIONS) as loader:
                it = iter(loader)
                first = next(it)
                if turn % 2:
                    loader.close()
                assert first.images.shape == (8, 32, 32, 3)

    run_concurrently(work)


class Waits(Images):
    """A dataset in which sample `first` and all later samples block until they are released."""

    def __init__(self, first: int) -> None:
        super().__init__(400)
        self.first, self.go = first, threading.Event()

    def __getitem__(self, index: int) -> object:
        if index >= self.first:
            self.go.wait(600)
        return super().__getitem__(index)


def test_close_ends_the_waits_of_other_threads() -> None:
    source = Waits(16)
    loader = Loader(source, **{**OPTIONS, "shuffle": False}, num_workers=2)
    it = iter(loader)
    next(it), next(it)
    errors: list[str] = []

    def wait() -> None:
        with pytest.raises(WarpfeedError) as raised:
            next(it)
        errors.append(str(raised.value))

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    time.sleep(0.2)
    assert all(thread.is_alive() for thread in waiting)
    closing = threading.Thread(target=loader.close)
    closing.start()
    # The reads are still blocked, so `close` has ended the waits. It now waits for the reads.
    for thread in waiting:
        thread.join(50)
        assert not thread.is_alive()
    assert all("closed" in text for text in errors) and len(errors) == 3
    source.go.set()
    closing.join(50)
    assert not closing.is_alive()
    loader.close()


class Counts(Images):
    def __init__(self) -> None:
        super().__init__()
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def __getitem__(self, index: int) -> object:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.005)
        with self.lock:
            self.now -= 1
        return super().__getitem__(index)


def test_workers_read_a_python_source_concurrently() -> None:
    options, source = {**OPTIONS, "batch_size": 4, "shuffle": False}, Counts()
    plain = contents(Loader(Images(), **options, num_workers=1))
    assert contents(Loader(source, **options, num_workers=4)) == plain
    assert source.most > 1


def test_a_span_ends_only_on_the_thread_on_which_it_began() -> None:
    span = warpfeed.span("of this thread")

    refused: list[BaseException] = []

    def leave() -> None:
        with span:
            pass
        try:
            span.__exit__()
        except BaseException as e:
            refused.append(e)

    with span:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
    [error] = refused
    assert type(error) is RuntimeError
    assert str(error).startswith("span \"of this thread\": this thread has not entered the span")
    with pytest.raises(RuntimeError, match="enter and leave it on the same thread"):
        span.__exit__()


def test_messages_of_many_threads_arrive_once(packed: str, caplog: pytest.LogCaptureFixture) -> None:
    class Bad(Images):
        def __init__(self) -> None:
            super().__init__(40, give="bad")

    with caplog.at_level("WARNING", logger="warpfeed"):
        run_concurrently(lambda _: list(Loader(Bad(), **OPTIONS, max_skipped=1, unlabeled=True)))
    messages = [record.getMessage() for record in caplog.records if "the seventh is missing" in record.getMessage()]
    assert len(messages) == THREADS


SLOW = """
import gc, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
import warpfeed
from conftest import Images
class Slow(Images):
    def __getitem__(self, index):
        if index >= 8:
            time.sleep(0.5)
        return super().__getitem__(index)
signal.signal(signal.SIGINT, signal.default_int_handler)
options = dict(batch_size=4, num_workers=2, augment=warpfeed.Augment.train(32), output="numpy")
def opened():
    return warpfeed.Loader(Slow(400), **options)
def interrupt(seconds=0.3):
    signal.setitimer(signal.ITIMER_REAL, seconds)
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
"""


def slow(code: str) -> str:
    return ran(SLOW + textwrap.dedent(code), str(Path(__file__).parent), timeout=60)


@needs("signals", hasattr(signal, "setitimer"))
@pytest.mark.parametrize("call", ["loader.close()", "len(loader), loader.memory_plan()", "gc.collect()"])
def test_a_signal_handler_may_call_a_loader_during_a_wait(call: str) -> None:
    out = slow(
        f"""
        loader = opened()
        # Only the collector can free this older iterator, which then ends its epoch in the loader.
        class Cycle: pass
        cycle = Cycle()
        cycle.itself, cycle.iterator = cycle, iter(loader)
        next(cycle.iterator)
        it = iter(loader)
        next(it), next(it)
        gc.disable()
        del cycle
        def handle(*_):
            {call}
            print("handled", flush=True)
        signal.signal(signal.SIGALRM, handle)
        interrupt(0.2)
        try:
            print(next(it).batch_index)
        except warpfeed.WarpfeedError as e:
            print("closed" in str(e))
        """
    )
    assert out.split() == ["handled", "True" if "close" in call else "2"]


@needs("signals", hasattr(signal, "setitimer"))
@pytest.mark.parametrize(
    ("call", "first", "after"),
    [
        ("loader.set_epoch(5)", "20", 5),
        ("loader.set_epoch(21)", "20", 21),
        ("loader.load_state_dict(state)", "a newer iterator", 0),
        ("next(iter(loader))", "a newer iterator", 22),
        ("next(it)", "20", 21),
        ("loader.close()", "closed", 20),
    ],
)
def test_a_signal_handler_may_call_a_loader_in_its_sampler(call: str, first: str, after: int) -> None:
    out = slow(
        f"""
        called = []
        def order(epoch):
            called.append(epoch)
            if epoch == 20:
                signal.raise_signal(signal.SIGALRM)
            return range(40)
        loader = warpfeed.Loader(Images(40), sampler=order, **options)
        state = loader.state_dict()
        loader.set_epoch(20)
        it = iter(loader)
        def handle(*_):
            try:
                {call}
            except warpfeed.ConfigError as e:
                print("refused:", e)
        signal.signal(signal.SIGALRM, handle)
        try:
            print("first", next(it).epoch)
        except warpfeed.WarpfeedError as e:
            print("first", e)
        print("after", loader.epoch, called.count(20))
        """
    )
    assert out.endswith(f"after {after} 1\n") and first in out.split("first ")[1], out
    assert ("refused: this thread is already beginning" in out) == (call == "next(it)")


def test_after_a_failed_sampler_the_next_iterator_retries(packed: str) -> None:
    failing = True

    def order(epoch: int) -> list[int]:
        if failing and epoch == 20:
            raise RuntimeError("no order yet")
        return list(range(8))

    loader = Loader(packed, sampler=order, **{**OPTIONS, "shuffle": False})
    loader.set_epoch(20)
    for begin in (lambda: iter(loader), lambda: loader.epoch_from(20, 0)):
        with pytest.raises(RuntimeError, match="no order yet"):
            next(begin())
        assert loader.epoch == 20
    failing = False
    assert next(iter(loader)).epoch == 20 and loader.epoch == 21


BLOCKS = """
class Blocks(Images):
    go, reached = threading.Event(), threading.Event()
    def __getitem__(self, index):
        if index >= 8:
            self.reached.set()
            self.go.wait(600)
        return super().__getitem__(index)
"""


@needs("signals", hasattr(signal, "setitimer"))
def test_ctrl_c_ends_close_and_the_next_close_joins_threads() -> None:
    out = slow(
        BLOCKS
        + textwrap.dedent(
            """
        source = Blocks(400)
        loader = warpfeed.Loader(source, **options)
        it = iter(loader)
        next(it)
        source.reached.wait(50)
        interrupt()
        begun = time.monotonic()
        try:
            loader.close()
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begun < 10)
        threading.Timer(0.5, source.go.set).start()
        loader.close()
        print("ended", source.go.is_set())
        try:
            next(iter(loader))
        except warpfeed.WarpfeedError as e:
            print("closed" in str(e))
        """
        )
    )
    assert out == "interrupted True\nended True\nTrue\n"


@needs("signals", hasattr(signal, "setitimer"))
@pytest.mark.parametrize("target", ["x.lmdb", "x.tar"])
def test_ctrl_c_ends_packing_with_stuck_reads(target: str, tmp_path: Path) -> None:
    out = slow(
        BLOCKS
        + textwrap.dedent(
            f"""
        import os
        source, folder, reported = Blocks(400), {str(tmp_path)!r}, []
        interrupt()
        begun = time.monotonic()
        try:
            warpfeed.pack(source, os.path.join(folder, {target!r}), num_workers=2, progress=lambda *now: reported.append(now))
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begun < 10)
        print(all(total == 400 for _, total in reported) and reported == sorted(set(reported)))
        source.go.set()
        while os.listdir(folder):
            time.sleep(0.01)
        print("nothing stays")
        """
        )
    )
    assert out == "interrupted True\nTrue\nnothing stays\n"


@needs("signals", hasattr(signal, "setitimer"))
def test_a_signal_handler_runs_while_reads_of_packing_are_stuck(tmp_path: Path) -> None:
    out = slow(
        BLOCKS
        + textwrap.dedent(
            f"""
        source = Blocks(40)
        def handle(*_):
            print("handled", flush=True)
            source.go.set()
        signal.signal(signal.SIGALRM, handle)
        interrupt()
        print(warpfeed.pack(source, {str(tmp_path / "x.tar")!r}, num_workers=2)["samples"])
        """
        )
    )
    assert out == "handled\n40\n"


@needs("signals", hasattr(signal, "setitimer"))
@pytest.mark.parametrize(
    "call",
    [
        "warpfeed.Loader(source, balanced=True, **options)",
        "warpfeed.split(warpfeed.Concat([source, source]), [0.5, 0.5], seed=1, stratify=True)",
        "loader.replay(3)",
    ],
    ids=["opening", "split", "replay"],
)
def test_ctrl_c_works_in_every_long_call(call: str) -> None:
    out = slow(
        BLOCKS
        + textwrap.dedent(
            f"""
        class Late(Blocks):
            # After its release, a read continues briefly.
            def __getitem__(self, index):
                found = super().__getitem__(index)
                time.sleep(0.5 if index >= 8 else 0)
                return found
        source = Late(400)
        loader = warpfeed.Loader(source, **options)
        interrupt()
        # After 50 seconds, let the calls return.
        release = threading.Timer(50, source.go.set)
        release.daemon = True
        release.start()
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", not source.go.is_set())
        # The program exits while an abandoned thread is inside the dataset.
        source.go.set()
        """
        )
    )
    assert out == "interrupted True\n"


@needs("signals", hasattr(signal, "setitimer"))
def test_a_read_that_ends_during_exit_does_not_abort() -> None:
    out = slow(
        textwrap.dedent(
            """
        import os, types
        class Long(Images):
            # A read takes longer than the program waits for a read that Ctrl-C has abandoned.
            def __getitem__(self, index):
                time.sleep(6)
                return super().__getitem__(index)
        class Last:
            # The read ends while the interpreter clears its modules.
            def __del__(self, write=os.write, sleep=time.sleep):
                write(1, b"clearing\\n")
                sleep(1.5)
        sys.modules["last"] = types.ModuleType("last")
        sys.modules["last"].last = Last()
        interrupt()
        try:
            warpfeed.Loader(Long(4), balanced=True, **options)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
        )
    )
    assert out == "interrupted\nclearing\n"


@needs("signals", hasattr(signal, "setitimer"))
def test_ctrl_c_reaches_a_second_waiter_and_after_a_replay() -> None:
    out = slow(
        BLOCKS
        + textwrap.dedent(
            """
        source = Blocks(400)
        loader = warpfeed.Loader(source, **options)
        it = iter(loader)
        next(it), next(it)
        other = threading.Thread(target=lambda: next(it), daemon=True)
        other.start()
        source.reached.wait(50)
        time.sleep(0.1)
        # No read returns, so neither the first waiter nor a replay gets a batch.
        for call in [lambda: next(it), lambda: loader.replay(3)]:
            interrupt()
            try:
                call()
            except KeyboardInterrupt:
                print("interrupted", other.is_alive())
        source.go.set()
        other.join()
        loader.set_epoch(0)
        print(next(iter(loader)).batch_index)
        """
        )
    )
    assert out == "interrupted True\n" * 2 + "0\n"


def test_a_timeout_spans_checks_for_signals(packed: str) -> None:
    loader = Loader(packed, **{**OPTIONS, "batch_size": 4}, copy=False, prefetch=2, held_batches_timeout=0.4)
    it, retained = iter(loader), []
    begun = time.monotonic()
    with pytest.raises(WarpfeedError, match="the program has held batches in all 4 slots"):
        while True:
            retained.append(next(it))
    assert 0.3 < time.monotonic() - begun < 20
    # A wait that is interrupted to check for signals is counted once.
    loader = Loader(Waited(), batch_size=2, num_workers=1, augment=Augment.train(32), output="numpy")
    for _ in loader:
        pass
    stats = loader.stats()
    assert stats["wait"]["count"] == 4 and stats["waited_seconds"] > 0.5 * 8 * 0.15


class Waited(Images):
    def __init__(self) -> None:
        super().__init__(8)

    def __getitem__(self, index: int) -> object:
        time.sleep(0.15)
        return super().__getitem__(index)


class Remembers(Images):
    """A dataset that opens a handle per thread, as programs do with boto3, h5py and LMDB."""

    def __init__(self) -> None:
        super().__init__(200)
        self.local, self.lock, self.made, self.gone = threading.local(), threading.Lock(), 0, 0

    def __getitem__(self, index: int) -> object:
        if not hasattr(self.local, "handle"):
            with self.lock:
                self.made += 1
            self.local.handle = Handle(self)
        return super().__getitem__(index)


class Handle:
    def __init__(self, of: Remembers) -> None:
        self.of = of

    def __del__(self) -> None:
        with self.of.lock:
            self.of.gone += 1


def test_thread_locals_of_a_source_live_as_long_as_the_thread() -> None:
    source = Remembers()
    loader = Loader(source, **OPTIONS, num_workers=2)
    for _ in range(3):
        assert sum(len(images) for images, _ in loader) == 200
    # Each worker, each reader, and the threads that opened the loader may have made a handle.
    assert 1 <= source.made <= 2 + 32 + 2, f"{source.made} for 600 samples"
    loader.close()
    assert source.gone == source.made, "a thread that ends must release its handle"


class Holds(Images):
    """A dataset that holds a reference to its own loader."""

    def __init__(self, how: str) -> None:
        super().__init__()
        parts = {"data": self, "Concat": warpfeed.Concat([Images(), self]), "mixture": [(Images(), 0.5), (self, 0.5)]}
        source: Any = parts.get(how, Images())
        order = self.order if how == "order" else None
        self.loader = Loader(source, **{**OPTIONS, "shuffle": False}, sampler=order, num_workers=2)

    def order(self, epoch: int) -> list[int]:
        return list(range(40))


@pytest.mark.parametrize("how", ["data", "order", "Concat", "mixture"])
@pytest.mark.parametrize("used", [False, True])
def test_a_dataset_that_holds_its_own_loader_is_collected(how: str, used: bool) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
    held = Holds(how)
    if used:
        assert len(list(held.loader)) >= 5
        it = iter(held.loader)
        next(it)
        del it
    gone = weakref.ref(held)
    gc.collect()
    assert gone() is not None and next(iter(held.loader)).batch_index == 0
    del held
    gc.collect()
    assert gone() is None
    if before:
        for _ in range(1200):
            if len(os.listdir("/proc/self/task")) <= before:
                break
            time.sleep(0.05)
        assert len(os.listdir("/proc/self/task")) <= before, "the loader's threads are still running"


class Collects(Images):
    """A dataset that runs the garbage collector on a reading thread when sample 80 or a later one is
    read (batch 10), until a collection has ended."""

    def __init__(self) -> None:
        super().__init__(400)
        self.begun, self.may_continue, self.done = threading.Event(), threading.Event(), threading.Event()

    def __getitem__(self, index: int) -> object:
        if index >= 80 and not self.done.is_set():
            self.begun.set()
            assert self.may_continue.wait(60)
            gc.collect()
            self.done.set()
        return super().__getitem__(index)


class Cycle:
    """An object that refers to itself, so that only the garbage collector frees it."""

    def __init__(self, held: Any) -> None:
        self.held, self.me = held, self


@pytest.mark.parametrize("what", ["loader", "decoder"])
def test_the_collector_ends_a_loader_on_one_of_its_own_threads(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    source = Collects()
    loader = Loader(source, **{**OPTIONS, "shuffle": False}, num_workers=2, prefetch=8)
    held: Any = loader
    if what == "decoder":
        # The decoder's threads do not run Python code, so a thread of the loader must collect the
        # decoder.
        held = warpfeed.Decoder(augment=Augment.eval(32, 32), output="numpy")
    cycle = Cycle(held)
    gone = weakref.ref(cycle)
    it = iter(loader)
    # Batches 0 to 3 are complete before a worker waits in batch 10, because the loader prepares
    # batch 10 only after the program has received the first batches.
    for _ in range(4):
        next(it)
    assert source.begun.wait(60)
    gc.disable()
    try:
        del cycle, held
        if what == "loader":
            del loader, it
        source.may_continue.set()
        assert source.done.wait(60), "the collector waits for the thread on which it runs"
    finally:
        gc.enable()
    for _ in range(1200):
        if gone() is None:
            break
        time.sleep(0.05)
    assert gone() is None
    # The collector still works. Until the other thread's collection ends, calls to `gc.collect`
    # return without doing anything.
    cycle = Cycle(None)
    gone = weakref.ref(cycle)
    del cycle
    for _ in range(1200):
        gc.collect()
        if gone() is None:
            break
        time.sleep(0.05)
    assert gone() is None
    assert "panicked" not in capfd.readouterr().err


NO_THREADS = """
import resource, sys, threading
import warpfeed

options = {"batch_size": 8, "num_workers": 2, "prefetch": 2, "output": "numpy", "augment": warpfeed.Augment.train(32)}
loader, other = (warpfeed.Loader(sys.argv[1], **options) for _ in range(2))
batches = iter(loader)
next(batches)
with open("/proc/self/status") as status:
    size = next(int(line.split()[1]) for line in status if line.startswith("VmSize")) << 10
# Leave memory for Python, but not for the stack of a new thread.
resource.setrlimit(resource.RLIMIT_AS, (size + (48 << 20), resource.RLIM_INFINITY))
threading.stack_size(64 << 20)
try:
    threading.Thread(target=print).start()
except RuntimeError:
    loader.close()
    try:
        next(batches)
    except warpfeed.WarpfeedError as e:
        print(e)
# The exit of the program closes the second loader.
"""


@needs("linux", os.path.exists("/proc/self/status"))
def test_loaders_close_even_if_no_thread_can_start(mini: str) -> None:
    assert "the loader is closed" in ran(NO_THREADS, mini, RUST_MIN_STACK=str(64 << 20))
