"""Figures of one group of measurements, and their form in a Markdown table."""

import json
import pathlib
import statistics
import textwrap

HERE = pathlib.Path(__file__).resolve().parent


def number(value, unit):
    if unit == "images/s":
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 20 else f"{value:.2f}"


class Group:
    """Figures of one record. A figure that was not measured is None."""

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
        """Median of the ratios of the rounds."""
        ours, theirs = self.rounds(key), self.rounds(base)
        if not ours or not theirs:
            return ""
        return of.format(statistics.median(a / b for a, b in zip(ours, theirs)))

    def caption(self, measured):
        about = self.about
        where = ", ".join(filter(None, [about["gpu"], about["machine"]]))
        versions = ", ".join(f"{name} {version}" for name, version in sorted(about["versions"].items()))
        most = max(len(figure["rounds"]) for figure in about["figures"].values())
        spread = f" Medians of {most} rounds in turns, lowest and highest in brackets." if most > 1 else ""
        load = f"load {about['load']} before" if about["load"] else ""
        run = ", ".join(
            filter(None, [where, load, about["data"], versions, about["date"], f"commit {about['commit']}"])
        )
        note = f" {about['note']}" if "note" in about else ""
        text = f"{measured}{spread}{note} {run}. Command: `{about['command']}`."
        return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def table(head, rows):
    """Formats a Markdown table, without rows that have no figures."""
    lines = [head, ["---"] * len(head), *(row for row in rows if any(row[1:]))]
    return "\n".join("".join(f"| {cell} " if cell else "| " for cell in line) + "|" for line in lines)
