"""The statistics and reports that loaders and decoders return. They print as text."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Mapping

from . import _options, _warpfeed

__all__ = ["Report", "Stats"]


class Report(dict[str, Any]):
    """A dict of statistics that prints as text."""

    def __init__(self, numbers: str, text: str) -> None:
        super().__init__(json.loads(numbers))
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (json.dumps(dict(self)), self._text)


class Stats(Report):
    """The statistics of a loader or a decoder. Times are in seconds.

    - ``batches`` and ``samples``: the numbers of delivered batches and samples. ``epochs`` is the
      number of epochs that delivered at least one batch, and ``seconds`` is the time within epochs.
    - ``waited_seconds``: the time that the host waited for batches. ``stall`` is the time that the
      device's stream waited for batches.
    - ``read``, ``decode``, ``transform`` and ``write``: the stages of the workers. ``fields`` has a
      stage for each field that requires computation, such as masks and boxes. ``step`` is the time
      from receiving a batch to requesting the next batch. Every stage has ``count`` and
      ``seconds``.
    - ``workers``, ``prefetch`` and ``slots``: the current numbers of worker threads, prefetched
      batches and batch buffers.
    - ``host_bytes``, ``pinned_bytes`` and ``device_bytes``: memory use.
    - ``decoded_cache``: hits, misses, images and bytes of the cache of decoded images, or None.
    - ``damaged_images``, ``read_retries`` and ``slowest``: the number of damaged images, the number
      of repeated reads, and the slowest samples.

    The page "Finding where the time goes" in the documentation lists all keys. For an experiment
    tracker, :meth:`flat` returns only the numbers.
    """

    def flat(self) -> dict[str, float]:
        """Returns all numbers by their path, such as ``decode/seconds``. Leaves out lists and
        strings.

        Use ``wandb.log(stats.flat())``, or ``SummaryWriter.add_scalar`` for each number.
        """
        numbers: dict[str, float] = {}

        def walk(path: str, value: Any) -> None:
            if isinstance(value, dict):
                for name, inner in value.items():
                    walk(f"{path}/{name}" if path else name, inner)
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers[path] = value

        walk("", dict(self))
        return numbers

    def since(self, earlier: Mapping[str, Any]) -> Stats:
        """Returns the statistics for the time since ``earlier``, such as one epoch. ``earlier``
        must be statistics of the same loader."""
        return Stats(*_warpfeed.stats_since(json.dumps(dict(self)), json.dumps(dict(earlier))))

    def verdict(self) -> Report:
        """Returns the bottleneck of the loader or decoder, and how to remove it, as a dict that
        prints as text."""
        return Report(*_warpfeed.verdict_of(json.dumps(dict(self))))

    def gather(self, collect: Callable[[Any], Any] | None = None) -> Report:
        """Compares the ranks of a training run: which rank waits most for its loader, and why.

        All ranks must call this method, and each rank gets the same result. ``slowest`` is the rank
        that waits for the largest fraction of its time, ``wait_fraction`` is this fraction, and
        ``bottleneck`` limits the slowest rank's loader. For each stage, ``stages`` contains the
        maximum time of a rank in seconds, the rank with this time, and the median of all ranks.
        ``ranks`` contains the numbers and the verdict of each rank.

        Args:
            collect: a function that each rank calls with one argument, and that returns the list of
                the arguments of all ranks, such as mpi4py's ``comm.allgather``. The default uses
                ``all_gather_object`` of ``torch.distributed``.

        Raises:
            ConfigError: if there are several ranks but neither ``collect`` nor an initialized
                ``torch.distributed``, or if the result of ``collect`` is not a list that contains
                this rank's entry.
        """
        from . import _gather

        return _gather.gather(self, collect)

    def report(self, out: _options.Path, *, title: str = "warpfeed", trace: _options.Path | None = None) -> None:
        """Writes the statistics to ``out`` as a single HTML file that works offline.

        If ``trace`` is the trace file of the same run, the page includes a timeline. The trace file
        is complete once the loader is closed.
        """
        trace_path = None if trace is None else os.fspath(trace)
        _warpfeed.report(os.fspath(out), title, json.dumps(dict(self)), trace_path)
