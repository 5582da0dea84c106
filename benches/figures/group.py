"""Reads the figures of one group of benchmarks, and formats them for Markdown tables."""

import json
import pathlib
import statistics
import re
import textwrap

HERE = pathlib.Path(__file__).resolve().parent


def number(value, unit):
    if unit == "images/s":
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 20 else f"{value:.2f}"


class Group:
    """The figures of one record. A figure that was not measured is None."""

    def __init__(self, name):
        self.about = json.loads((HERE / f"{name}.json").read_text())
        for key, figure in self.about["figures"].items():
            rounds = figure["rounds"]
            said = [figure["median"], figure["min"], figure["max"]]
            found = [statistics.median(rounds), min(rounds), max(rounds)]
            if said != found:
                raise SystemExit(f"{name}.json: {key}: median, min, max are {said}, but the rounds give {found}")

    def rounds(self, key):
        return self.about["figures"].get(key, {}).get("rounds")

    def unit(self, key):
        return self.about["figures"][key]["unit"]

    def most_cores(self):
        return max(int(key.rsplit("/", 1)[1]) for key in self.about["figures"])

    def median(self, key):
        rounds = self.rounds(key)
        return number(statistics.median(rounds), self.unit(key)) if rounds else ""

    def cell(self, key):
        rounds = self.rounds(key)
        if not rounds:
            return ""
        middle = self.median(key)
        low, high = (number(value, self.unit(key)) for value in (min(rounds), max(rounds)))
        return middle if low == high else f"{middle} ({low} to {high})"

    def ratio(self, key, base, of="{:.1f}"):
        """Returns the median, over all rounds, of the ratio of `key` to `base`."""
        ours, theirs = self.rounds(key), self.rounds(base)
        if not ours or not theirs:
            return ""
        return of.format(statistics.median(a / b for a, b in zip(ours, theirs)))

    def caption(self, work, settings):
        """Describes the work, the settings of the other loaders, the machine, the data and the command."""
        about = self.about
        where = ", ".join(filter(None, [about["gpu"], about["machine"]]))
        load = f", load {about['load']} before" if about["load"] else ""
        versions = ", ".join(f"{name} {version}" for name, version in sorted(about["versions"].items()))
        rounds = max(len(figure["rounds"]) for figure in about["figures"].values())
        cached = "Every loader reads from the page cache"
        source = "Both programs have them in memory" if about["group"] == "requests" else cached
        items = [
            f"Work: {work}.",
            f"Other loaders: {settings}.",
            f"Versions: {versions}.",
            f"Data: {about['data']}, {self.megabytes()} MB of files. {source}.",
            f"Machine: {where}{load}.",
            f"Figures: medians of {rounds} rounds in turns, lowest and highest in brackets." if rounds > 1 else "",
            about.get("note", ""),
            f"Measured {about['date']} at commit {about['commit']}: `{about['command']}`",
        ]
        wrap = textwrap.TextWrapper(
            100, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        return "\n".join(wrap.fill(item) for item in items if item)

    def megabytes(self):
        """Returns the size of the distinct photographs, because links to a photograph share its
        pages in the page cache."""
        count, mean = re.match(r"(\d+) photographs \(mean (\d+) KB\)", self.about["data"]).groups()
        return round(int(count) * int(mean) / 1000)


def table(head, rows):
    """Formats a Markdown table, leaving out rows without figures."""
    lines = [head, ["---"] * len(head), *(row for row in rows if any(row[1:]))]
    return "\n".join("".join(f"| {cell} " if cell else "| " for cell in line) + "|" for line in lines)
