"""The user's function on each image: the side of the loader."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import sys
import threading
import time
import weakref
from typing import IO, Any, Callable

from . import _process, _warpfeed
from ._error import ConfigError
from ._transforms import name_of

__all__ = ["Albumentations", "Function"]

_log = logging.getLogger("warpfeed")


class Albumentations:
    """A pipeline of albumentations (from version 2) or albumentationsx as a function on an image.

    ``Loader(transform=pipeline)`` makes one by itself. All random numbers of the pipeline come from
    the generator of the sample.
    """

    def __init__(self, pipeline: Any) -> None:
        if not hasattr(pipeline, "set_random_state"):
            raise ConfigError(f"{type(pipeline).__qualname__} has no set_random_state: want albumentations 2 or newer")
        self.pipeline = pipeline
        self._own = threading.local()

    def __call__(self, image: Any, rng: Any) -> Any:
        import random

        # A pipeline keeps its generator and parameters, so each thread has one of its own.
        pipeline = getattr(self._own, "pipeline", None)
        if pipeline is None:
            pipeline = self._own.pipeline = copy.deepcopy(self.pipeline)
        pipeline.set_random_state(rng, random.Random(int(rng.integers(1 << 63))))
        return pipeline(image=image)["image"]

    def __reduce__(self) -> tuple[object, ...]:
        return Albumentations, (self.pipeline,)

    def __repr__(self) -> str:
        return f"Albumentations({self.pipeline!r})"


class Function:
    """The processes, or threads, that call a function on each image of a loader."""

    def __init__(self, f: Callable[..., Any], processes: int | None, num_workers: int = 0) -> None:
        if type(f).__module__.partition(".")[0] == "albumentations":
            f = Albumentations(f)
        if type(f).__module__.partition(".")[0] == "torchvision":
            raise ConfigError(
                f"transform={name_of(f)}: transform is called as f(image, rng) with an array, and steps of torchvision take "
                'a tensor: use augment, or call them on batches with output="torch": '
                "transforms=[lambda images, labels: (f(images), labels)]"
            )
        if processes is None:
            locked = getattr(sys, "_is_gil_enabled", lambda: True)()
            # Each worker thread uses one process at a time.
            processes = min(_cores(), num_workers or 1024) if locked else 0
        if processes > 1024:
            raise ConfigError(f"processes={processes}: want at most 1024")
        self.name, self.processes = name_of(f), processes
        if processes == 0:
            self.native = _warpfeed.Function(f, 0)
            self._end = weakref.finalize(self, _ended, self.native, [], os.getpid())
            return
        try:
            pickled = pickle.dumps(f)
        except Exception as e:
            raise ConfigError(
                f"transform={self.name} cannot be pickled for the worker processes: {e}. Define the function at the top "
                "level of a module, or pass processes=0 to call it in threads of this process"
            ) from e
        _check_program(f"transform={self.name}", pickled)
        self.native = _warpfeed.Function(None, processes)
        self._started: list[Any] = []
        # Dropping the loader ends them too.
        self._end = weakref.finalize(self, _ended, self.native, self._started, os.getpid())
        _start(self.native.ends(), pickled, self._started)
        self.native.started([int(process.pid or 0) for process in self._started])

    def end(self) -> None:
        """Ends the processes. The loader is closed, so they are idle, or nobody needs their answer."""
        if self._end.alive:
            self._end()
            self.log()

    def cost(self) -> dict[str, float]:
        """Returns what the function costs: the number of calls, and seconds of all of them."""
        calls, within, everything, waiting = self.native.cost()
        transfer = max(everything - within - waiting, 0.0)
        return {"calls": calls, "in_function": within, "transfer": transfer, "waiting_for_a_process": waiting}

    def log(self) -> None:
        """Logs the cost of the function."""
        cost = self.cost()
        calls = cost["calls"]
        if calls:
            each = {name: 1e3 * cost[name] / calls for name in cost if name != "calls"}
            _log.info(
                "transform=%s: %d calls in %s, %.2f ms each; %.2f ms for each to reach the function and return, %.2f ms "
                "waiting for a process", self.name, calls,
                f"{self.processes} processes" if self.processes else "worker threads",
                each["in_function"], each["transfer"], each["waiting_for_a_process"],
            )  # fmt: skip


def _check_program(transform: str, pickled: bytes) -> None:
    """Refuses a program that the worker processes cannot import. They run its file under another
    `__name__`, so an unguarded one would open its loader there again.

    Raises:
        ConfigError: if they cannot, with the remedy.
    """
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if path is None:
        if b"__main__" in pickled and getattr(main, "__spec__", None) is None:
            raise ConfigError(
                f"{transform} is defined in a program without a file, such as a notebook, so the worker processes cannot "
                "import it: define the function in a module, or pass processes=0 to call it in threads of this process"
            )
        return
    if not os.path.exists(path):
        raise ConfigError(
            f"{transform}: the worker processes cannot import the program, which has no file ({path}): save it in a file, "
            "or pass processes=0 to call the function in threads of this process"
        )
    if _is_unguarded(vars(main), path):
        raise ConfigError(
            f"{transform}: the worker processes import {path}, which would open the loader again there: put the code that "
            'runs under \'if __name__ == "__main__":\', or pass processes=0 to call the function in threads of this process'
        )


def _is_unguarded(main: dict[str, Any], path: str) -> bool:
    """Whether the program is at its top level and its text never asks in which process it is."""
    frame = sys._getframe()
    while frame.f_back is not None and not (frame.f_globals is main and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    if frame.f_globals is not main or frame.f_code.co_name != "<module>":
        return False
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        return False
    return not any(word in text for word in (b"__name__", b"parent_process", b"current_process"))


#: All processes of this one.
_all: weakref.WeakSet[Any] = weakref.WeakSet()


def _forget_processes() -> None:
    """Makes multiprocessing forget the processes of the parent, which it would end with this child."""
    from multiprocessing import process

    children: set[Any] = getattr(process, "_children", set())
    children.difference_update(_all)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_processes)


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


#: Seconds that all processes together have to end by themselves.
_GRACE = 0.5


def _ended(native: _warpfeed.Function, started: list[Any], owner: int) -> None:
    """Ends the processes, also those that are in the function."""
    if os.getpid() != owner:
        return  # A forked child: the processes belong to its parent.
    native.stop()
    until = time.monotonic() + _GRACE
    for process in started:
        process.join(max(0.0, until - time.monotonic()))
    stuck = [process for process in started if process.is_alive()]
    for process in stuck:
        process.kill()
    for process in stuck:
        process.join()
    started.clear()


def _start(ends: list[tuple[int, int]], pickled: bytes, started: list[Any]) -> None:
    """Starts a process for each pair of file descriptors, and adds it to `started`.

    The pickled function travels in a file: a pipe would fill up, and wait until a process has
    imported the program before the next one starts.
    """
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    with _unnamed() as function:
        function.write(pickled)
        function.flush()
        for number, (socket, file) in enumerate(ends):
            process = context.Process(
                target=_process.serve, name=f"warpfeed-transform-{number}", daemon=True,
                args=(_Descriptor(socket), _Descriptor(file), _Descriptor(function.fileno()), len(pickled), os.getpid()),
            )  # fmt: skip
            process.start()
            started.append(process)
            _all.add(process)


def _unnamed() -> IO[bytes]:
    """A file without a name, in memory if the system has such files.

    A container may have no writable folder.
    """
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("warpfeed-transform"), "w+b")
    import tempfile

    try:
        return tempfile.TemporaryFile()
    except FileNotFoundError as e:
        raise ConfigError(
            f"transform: the worker processes need a temporary file: {e}. Set TMPDIR to a folder, or pass processes=0"
        ) from e


class _Descriptor:
    """A file descriptor that travels to a process when it starts."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[object, ...]:
        from multiprocessing import reduction

        return _received, (reduction.DupFd(self._number),)


def _received(descriptor: Any) -> Any:
    return descriptor
