"""Numbers of a loader, which print as text."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from . import _options, _warpfeed

__all__ = ["Report", "Stats"]


class Report(dict[str, Any]):
    """Numbers by name, which print as text."""

    def __init__(self, numbers: str, text: str) -> None:
        super().__init__(json.loads(numbers))
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (json.dumps(dict(self)), self._text)


class Stats(Report):
    """The statistics of a loader; times are in seconds.

    - ``batches`` and ``samples`` that were delivered in ``seconds`` within ``epochs``.
    - ``waited_seconds``: the time that the host waited for batches. ``stall`` is the time that the
      device's stream waited for them.
    - ``read``, ``decode``, ``transform`` and ``write``: stages of the workers. ``fields`` has one
      for each field that computes, such as masks and boxes. ``step`` is the time of the program.
      Every stage has ``count`` and ``seconds``.
    - ``workers``, ``prefetch`` and ``slots`` in use, and ``host_bytes``, ``pinned_bytes`` and
      ``device_bytes`` of memory.
    - ``damaged``, ``retries`` and ``slowest``: images with damage, repeated reads, and the samples
      that took longest.

    The page "Where does the time go?" of the documentation lists all keys. :meth:`flat` has only
    numbers, for a tracker of experiments.
    """

    def flat(self) -> dict[str, float]:
        """Returns the numbers by path, such as ``decode/seconds``, without lists and texts.

        ``wandb.log(stats.flat())`` takes them, and ``SummaryWriter.add_scalar`` takes each.
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
        """Returns the statistics of the time since ``earlier``, such as one epoch. Both are of the
        same loader."""
        return Stats(*_warpfeed.stats_since(json.dumps(dict(self)), json.dumps(dict(earlier))))

    def verdict(self) -> Report:
        """Returns what limited the loader, and what would help."""
        return Report(*_warpfeed.verdict_of(json.dumps(dict(self))))

    def report(self, out: _options.Path, *, title: str = "warpfeed", trace: _options.Path | None = None) -> None:
        """Writes a page about the statistics: one HTML file that works offline.

        ``trace`` is the trace file of the same run, for a timeline. It is complete when the loader
        is closed.
        """
        where = None if trace is None else os.fspath(trace)
        _warpfeed.report(os.fspath(out), title, json.dumps(dict(self)), where)
