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

    ``stall`` is the time that the device's stream waited for batches, and ``waited_seconds`` the
    time that the host waited. ``read``, ``decode``, ``transform`` and ``write`` are stages of the
    workers, and ``fields`` has one for each field that computes, such as masks and boxes.
    """

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
