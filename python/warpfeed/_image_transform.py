"""Calls the user's function on each image, and manages the worker processes that run it."""

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

from . import _image_transform_process, _warpfeed
from ._error import ConfigError
from ._batch_transform import name_of

__all__ = ["Albumentations", "ImageTransform"]

_log = logging.getLogger("warpfeed")


class Albumentations:
    """Adapts a pipeline from albumentations (version 2 or later) or albumentationsx to the
    signature ``f(image, rng)``.

    ``Loader(image_transform=pipeline)`` wraps the pipeline in this class. The pipeline then draws
    its random numbers from ``rng``.
    """

    def __init__(self, pipeline: Any) -> None:
        if not hasattr(pipeline, "set_random_state"):
            raise ConfigError(
                f"image_transform={type(pipeline).__qualname__} has no method set_random_state; install albumentations "
                "2 or newer"
            )
        self.pipeline = pipeline
        self._thread_local = threading.local()

    def __call__(self, image: Any, rng: Any) -> Any:
        import random

        # A call modifies the pipeline's generator and parameters, so each thread uses a copy.
        pipeline = getattr(self._thread_local, "pipeline", None)
        if pipeline is None:
            pipeline = self._thread_local.pipeline = copy.deepcopy(self.pipeline)
        pipeline.set_random_state(rng, random.Random(int(rng.integers(1 << 63))))
        return pipeline(image=image)["image"]

    def __reduce__(self) -> tuple[object, ...]:
        return Albumentations, (self.pipeline,)

    def __repr__(self) -> str:
        return f"Albumentations({self.pipeline!r})"


class ImageTransform:
    """The function of the ``image_transform`` option, and the worker processes that call it."""

    def __init__(self, f: Callable[..., Any], processes: int | None, num_workers: int | None = None) -> None:
        if type(f).__module__.partition(".")[0] == "albumentations":
            f = Albumentations(f)
        if type(f).__module__.partition(".")[0] == "torchvision":
            raise ConfigError(
                f"image_transform={name_of(f)}: the loader calls f(image, rng) with a NumPy array, but "
                "torchvision transforms expect a tensor; use augment, or transform whole batches: "
                "batch_transform=[lambda images, labels: (f(images), labels)]"
            )
        if processes is None:
            has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
            # A worker thread uses one process at a time, so more processes would be idle.
            processes = min(_core_count(), num_workers or 1024) if has_gil else 0
        if processes > 1024:
            raise ConfigError(f"image_transform_processes={processes}: expected at most 1024")
        self.name, self.processes = name_of(f), processes
        if processes == 0:
            self.native = _warpfeed.Function(f, 0)
            self._finalizer = weakref.finalize(self, _end_processes, self.native, [], os.getpid())
            return
        try:
            pickled = pickle.dumps(f)
        except Exception as e:
            raise ConfigError(
                f"image_transform={self.name}: the function cannot be pickled for the worker processes: {e}. Define it "
                "at the top level of a module, or pass image_transform_processes=0 to call it in threads of this process"
            ) from e
        _check_main_program(f"image_transform={self.name}", pickled)
        self.native = _warpfeed.Function(None, processes)
        self._processes: list[Any] = []
        # End the processes even if the loader is dropped without being closed.
        self._finalizer = weakref.finalize(self, _end_processes, self.native, self._processes, os.getpid())
        _start_processes(self.native.descriptors(), pickled, self._processes)
        self.native.started([int(process.pid or 0) for process in self._processes])

    def end(self) -> None:
        """Ends the worker processes. Call this method only after the loader's threads have
        ended."""
        if self._finalizer.alive:
            self._finalizer()
            self.log()

    def cost(self) -> dict[str, float]:
        """Returns the number of calls, and the total seconds spent in the function, on transferring
        pixels, and on waiting for an idle process."""
        calls, in_function, total, waiting = self.native.cost()
        transfer = max(total - in_function - waiting, 0.0)
        return {"calls": calls, "in_function": in_function, "transfer": transfer, "waiting_for_a_process": waiting}

    def log(self) -> None:
        cost = self.cost()
        calls = cost["calls"]
        if calls:
            per_call = {name: 1e3 * cost[name] / calls for name in cost if name != "calls"}
            _log.info(
                "image_transform=%s: %d calls in %s, %.2f ms each, plus %.2f ms per call to transfer the pixels, "
                "and %.2f ms to wait for a process", self.name, calls,
                f"{self.processes} processes" if self.processes else "worker threads",
                per_call["in_function"], per_call["transfer"], per_call["waiting_for_a_process"],
            )  # fmt: skip


def _check_main_program(transform: str, pickled: bytes) -> None:
    """Checks that the worker processes can import the main program.

    The processes import the program under a different `__name__`. Without an
    `if __name__ == "__main__":` guard, each process would open the loader again.

    Raises:
        ConfigError: if the program cannot be imported, or has no guard.
    """
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if path is None:
        if b"__main__" in pickled and getattr(main, "__spec__", None) is None:
            raise ConfigError(
                f"{transform}: the worker processes cannot import a function that is defined in a program without a "
                "file, such as a notebook; define it in a module, or pass image_transform_processes=0 to call it in threads of "
                "this process"
            )
        return
    if not os.path.exists(path):
        raise ConfigError(
            f"{transform}: the worker processes cannot import the program, because {path} is not a file; save the "
            "program in a file, or pass image_transform_processes=0 to call the function in threads of this process"
        )
    if _is_unguarded(vars(main), path):
        raise ConfigError(
            f"{transform}: the worker processes import {path}, which would open the loader again; put its code under "
            '\'if __name__ == "__main__":\', or pass image_transform_processes=0 to call the function in threads of this process'
        )


def _is_unguarded(main: dict[str, Any], path: str) -> bool:
    """Returns whether the program opens the loader at its top level and has no check, such as a
    guard, for the process that runs it."""
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


_worker_processes: weakref.WeakSet[Any] = weakref.WeakSet()


def _forget_processes() -> None:
    """Makes multiprocessing forget the parent's worker processes in a forked child, which would
    otherwise terminate them when it exits."""
    from multiprocessing import process

    children: set[Any] = getattr(process, "_children", set())
    children.difference_update(_worker_processes)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_processes)


def _core_count() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


#: Seconds to wait for all processes together before the remaining processes are killed.
_GRACE_SECONDS = 0.5


def _end_processes(native: _warpfeed.Function, processes: list[Any], owner: int) -> None:
    """Stops the processes. A process that still runs the function after a grace period is
    killed."""
    if os.getpid() != owner:
        return  # This is a forked child, and the processes belong to its parent.
    native.stop()
    deadline = time.monotonic() + _GRACE_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    remaining = [process for process in processes if process.is_alive()]
    for process in remaining:
        process.kill()
    for process in remaining:
        process.join()
    processes.clear()


def _start_processes(descriptors: list[tuple[int, int]], pickled: bytes, processes: list[Any]) -> None:
    """Starts a process for each pair of file descriptors, and adds it to `processes`.

    The processes read the pickled function from a file. A full pipe would delay the start of each
    process until the previous process had imported the program.
    """
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    with _anonymous_file() as function_file:
        function_file.write(pickled)
        function_file.flush()
        for index, (socket, file) in enumerate(descriptors):
            process = context.Process(
                target=_image_transform_process.serve, name=f"warpfeed-transform-{index}", daemon=True,
                args=(_Descriptor(socket), _Descriptor(file), _Descriptor(function_file.fileno()), len(pickled), os.getpid()),
            )  # fmt: skip
            process.start()
            processes.append(process)
            _worker_processes.add(process)


def _anonymous_file() -> IO[bytes]:
    """Creates a temporary file, in memory if the system supports it, because a container may not
    have a writable folder."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("warpfeed-transform"), "w+b")
    import tempfile

    try:
        return tempfile.TemporaryFile()
    except FileNotFoundError as e:
        raise ConfigError(
            f"image_transform: the worker processes need a temporary file: {e}. Set TMPDIR to a writable folder, or "
            "pass image_transform_processes=0"
        ) from e


class _Descriptor:
    """A file descriptor that is duplicated when it is pickled for a new process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple[object, ...]:
        from multiprocessing import reduction

        return _return_unchanged, (reduction.DupFd(self._fd),)


def _return_unchanged(descriptor: Any) -> Any:
    return descriptor
