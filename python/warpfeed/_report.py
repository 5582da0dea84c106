"""Numbers of a loader, which print as text for a person."""

from __future__ import annotations

import json
from typing import Any, Mapping

from . import _options, _warpfeed

__all__ = ["Report", "Stats"]


class Report(dict[str, Any]):
    """Numbers by name, which print as text for a person."""

    def __init__(self, numbers: str, text: str) -> None:
        super().__init__(json.loads(numbers))
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (json.dumps(dict(self)), self._text)


class Stats(Report):
    """The statistics of a loader; times are in seconds.

    ``stall`` is the time that the device's stream waited for batches, ``waited_seconds`` that of
    the host. ``read``, ``decode``, ``transform`` and ``write`` are the workers' stages,
    and ``fields`` has one for each field that computes, such as masks and boxes.
    """

    def since(self, earlier: Mapping[str, Any]) -> Stats:
        """What happened between ``earlier`` and these, both of the same loader: of an epoch, say."""
        return Stats(*_warpfeed.stats_since(json.dumps(dict(self)), json.dumps(dict(earlier))))

    def verdict(self) -> Report:
        """What limited the loader, and what would lift that limit."""
        return Report(*_warpfeed.verdict_of(json.dumps(dict(self))))

    def report(self, out: _options.Path, *, title: str = "warpfeed", trace: _options.Path | None = None) -> None:
        """Writes a page about them: one HTML file that works without a network. ``trace`` is the
        file of a trace of the same run, for a timeline; it is complete when the loader is closed."""
        where = None if trace is None else _options.path_text(trace)
        _warpfeed.report(_options.path_text(out), title, json.dumps(dict(self)), where)
