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
    """The statistics of a loader or a decoder. Times are in seconds, and sizes in bytes.

    - ``batches`` and ``samples``: the numbers of delivered batches and samples. ``epochs`` is the
      number of epochs that delivered at least one batch, and ``seconds`` is the time within epochs.
      ``uptime_seconds`` is the time since the loader was opened.
    - ``waited_seconds``: the time that the host waited for batches, of which ``start_wait_seconds``
      was for the first batches of epochs.
    - ``read``, ``decode``, ``transform`` and ``write``: the stages of the workers. ``fields`` has a
      stage for each field that requires computation, such as masks and boxes. ``readahead`` is the
      stage of separate threads that read ahead, or None. Every stage has ``count``, ``seconds``,
      ``bytes``, ``p50_seconds`` and ``p99_seconds``.
    - ``wait``, ``step`` and ``slot_wait``, in the form of a stage: waits of the host for batches,
      the time from receiving a batch to requesting the next batch, and waits of the loader for a
      free batch buffer. ``straggler_wait`` has the waits for a single batch while all later batches
      were complete.
    - ``copy``, ``convert``, ``device_decode`` and ``stall``, on the device's clock: copies to the
      device, conversions, decoding, and waits of the program's stream for batches. They are None
      for host batches.
    - ``workers``, ``prefetch`` and ``slots``: the current numbers of worker threads, prefetched
      batches and batch buffers. ``max_prefetch`` and ``allocated_slots`` are the maximum of an
      automatic ``prefetch`` and the number of allocated buffers. ``cores`` is the number of cores
      that the process may use.
    - ``worker_seconds`` and ``delayed_seconds``: the total time of the workers within epochs, and
      the time in which workers were runnable but not running.
    - ``ready_histogram``: entry n is the number of requests for a batch while n batches were ready.
    - ``prepared_samples`` and ``bytes_read``: the number of samples that the workers prepared, and
      the size of their stored fields.
    - ``host_bytes``, ``pinned_bytes`` and ``device_bytes``: memory use.
    - ``decoded_cache``: hits, misses, images and bytes of the cache of decoded images, or None.
    - ``network``: requests to an object store, or None.
    - ``process``: the process's counters in the operating system.
    - ``damaged_images``, ``read_retries`` and ``slowest``: the number of damaged images, the number
      of repeated reads, and the slowest samples.
    - ``jpegs_without_restart_markers``: the number of JPEGs that packing would make faster to crop.
    - ``images_sent_to_device``, ``device_full_images`` and ``device_failed_samples``: the numbers of
      images that workers sent to the device, of images that they decoded because the batch had no
      device memory left, and of samples that the device could not decode.
    - ``timeline``: the run in equal intervals.
    - ``options``: the call that creates the loader. ``on_request`` is True for a decoder.

    The page "Finding where the time goes" in the documentation lists these keys. For an experiment
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
