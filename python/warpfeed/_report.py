"""Statistics and reports of loaders, which print as text."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from . import _options, _warpfeed

__all__ = ["Report", "Stats"]


class Report(dict[str, Any]):
    """A dict of numbers by name, which prints as text."""

    def __init__(self, numbers: str, text: str) -> None:
        super().__init__(json.loads(numbers))
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (json.dumps(dict(self)), self._text)


class Stats(Report):
    """The statistics of a loader. Times are in seconds.

    - ``batches``, ``samples``, ``seconds`` and ``epochs``: what was delivered, and in what time.
    - ``waited_seconds``: the time that the host waited for batches. ``stall`` is the time that the
      device's stream waited for them.
    - ``read``, ``decode``, ``transform`` and ``write``: stages of the workers. ``fields`` has a stage
      for each field that computes, such as masks and boxes. ``step`` is the time of the program.
      Every stage has ``count`` and ``seconds``.
    - ``workers``, ``prefetch`` and ``slots``: the numbers in use. ``host_bytes``, ``pinned_bytes`` and
      ``device_bytes``: memory.
    - ``damaged``, ``retries`` and ``slowest``: damaged images, repeated reads, and the slowest samples.

    The page "Where does the time go?" of the documentation lists all keys. :meth:`flat` returns only the
    numbers, for an experiment tracker.
    """

    def flat(self) -> dict[str, float]:
        """Returns the numbers by path, such as ``decode/seconds``, without lists and strings.

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
        """Returns the statistics of the time since ``earlier``, such as one epoch. Both must come from the
        same loader."""
        return Stats(*_warpfeed.stats_since(json.dumps(dict(self)), json.dumps(dict(earlier))))

    def verdict(self) -> Report:
        """Returns the bottleneck of the loader and its remedies."""
        return Report(*_warpfeed.verdict_of(json.dumps(dict(self))))

    def report(self, out: _options.Path, *, title: str = "warpfeed", trace: _options.Path | None = None) -> None:
        """Writes the statistics as a page: one HTML file that works offline.

        ``trace`` is the trace file of the same run, which adds a timeline. The file is complete when the loader
        is closed.
        """
        where = None if trace is None else os.fspath(trace)
        _warpfeed.report(os.fspath(out), title, json.dumps(dict(self)), where)
