"""Reads the results of one group of benchmarks, and formats them for Markdown tables."""

import ast
import json
import pathlib
import re
import statistics
import subprocess
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
# The benchmarks read local folders and LMDBs. Code for other formats, or for object stores, does not
# affect them.
FOLDERS = ("formats/folder", "formats/lmdb", "machine", "model", "values")
SOURCES = [f"sources/src/{folder}" for folder in FOLDERS]
PIPELINE = ["jpeg/src", *SOURCES, "src/batch", "src/decode", "src/engine", "src/loader", "src/transform"]
PATHS = {
    "host": PIPELINE,
    "device": [*PIPELINE, "src/device"],
    "training": [*PIPELINE, "src/device", "python/src", "python/warpfeed"],
    "requests": ["jpeg/src", "src/batch", "src/decode", "src/device", "src/transform"],
}
UNMEASURED = ["*.md", "*/tests.rs", "*.cu", "*.cuh", "*/kernels/compiled.txt", "*/temp_files.rs", "*/unpack.rs"]
# Decoders of other formats than JPEG, and functions that the training script does not call.
UNMEASURED += [f"src/decode/{format}/*" for format in ("formats", "png", "tiff")]
UNMEASURED += [f"python/warpfeed/{name}.py" for name in ("_other_names", "_ranks", "collate", "lightning")]
OLDER = "**Outdated**:"
# The line that `caption` adds for an older table. `check` ignores it, because it depends on commits
# that may not exist yet when the page is committed.
MARK = re.compile(rf"\n+(?:- )?{re.escape(OLDER)}.*(?:\n  .*)*")


# A string literal. If it contains a space, it is a message.
MESSAGE = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
TESTS = re.compile(r"^#\[cfg\((?:all\()?test\b[^\n]*\]\nmod \w+ \{\n.*\Z", re.MULTILINE | re.DOTALL)


def changed(group, commit):
    """Returns the paths of a group in which code has changed since a commit, not counting layout,
    comments, docstrings, messages, unit tests and Markdown. The PTX stands for the CUDA code. None
    if this clone does not have the commit."""
    commit = commit.rstrip("+")
    diff = ["diff", "--numstat", f"{commit}..HEAD", "--"]
    diff += [f":/{path}" for path in PATHS[group]] + [f":(exclude,top){path}" for path in UNMEASURED]
    try:
        files = {line.split("\t", 2)[2] for line in git(*diff).splitlines()}
    except (OSError, subprocess.CalledProcessError):
        return None
    files = {file for file in files if "/tests/" not in file and measured(commit, file) != measured("HEAD", file)}
    return [path for path in PATHS[group] if any(file.startswith(f"{path}/") for file in files)]


def git(*arguments):
    return subprocess.run(["git", "-C", str(HERE), *arguments], capture_output=True, text=True, check=True).stdout


def measured(commit, file):
    """Returns the part of a file that affects measurements, or None if the commit does not have the
    file."""
    try:
        text = git("show", f"{commit}:{file}")
    except subprocess.CalledProcessError:
        return None
    if file.endswith(".py"):
        return without_text(text)
    code = re.sub(r"^\s*//.*\n", "", TESTS.sub("", text), flags=re.MULTILINE)
    code = re.sub(r"'\\?.'", "''", code)  # a quotation mark in a character literal begins no string
    code = MESSAGE.sub(lambda string: string[0] if " " not in string[0] else '""', code)
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", code))


def without_text(text):
    """Returns the syntax tree of a Python file without docstrings and messages."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            node.value = ""
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            del body[0]
    return ast.dump(tree)


def number(value, unit):
    if unit == "images/s":
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 20 else f"{value:.2f}"


class Group:
    """A group of benchmarks with its results. A result that was not measured is None."""

    def __init__(self, name):
        self.name = name
        self.about = json.loads((HERE / f"{name}.json").read_text())
        for key, figure in self.about["figures"].items():
            rounds = figure["rounds"]
            text = [figure["median"], figure["min"], figure["max"]]
            results = [statistics.median(rounds), min(rounds), max(rounds)]
            if text != results:
                raise SystemExit(f"{name}.json: {key}: median, min, max are {text}, but the rounds give {results}")

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
        middle = statistics.median(a / b for a, b in zip(ours, theirs))
        return f"{middle:.0f}" if middle >= 99.5 else of.format(middle)

    def older(self):
        """Returns the paths that changed since this measurement, or an empty list if the age is
        unknown."""
        return [f"`{path}`" for path in changed(self.name, self.about["commit"]) or []]

    def settings(self):
        """Returns the settings of the other loaders, with the result of the sweep of DALI's JPEG
        engine."""
        shares = self.about.get("hw_decoder_load")
        if not shares:
            return self.about["settings"]
        tried = sorted({key.split("/")[-2].split(" ")[1] for key in self.about["figures"] if "dali " in key})
        with_cores = ", ".join(f"{share} ({n} core{'s' * (n != '1')})" for n, share in shares.items())
        date = self.about.get("sweep_date")
        sweep = f"a sweep of {date}" if date else "a sweep"
        best = f"DALI's `hw_decoder_load` is the best of {', '.join(tried)} in {sweep}: {with_cores}"
        return f"{self.about['settings']}. {best}"

    def caption(self, work):
        """Describes the work, the settings of the other loaders, the machine, the data and the
        command."""
        about = self.about
        where = ", ".join(filter(None, [about["gpu"], about["machine"]]))
        load = f", load {about['load']} before" if about["load"] else ""
        versions = ", ".join(f"{name} {version}" for name, version in sorted(about["versions"].items()))
        # A sweep has one round per setting.
        counts = sorted({len(figure["rounds"]) for figure in about["figures"].values()} - {1})
        rounds = " or ".join(map(str, counts))
        long = f" of {about['seconds']} s after a warm-up of {about['warmup']} s" if "seconds" in about else ""
        older = self.older()
        cached = "Every loader reads from the page cache"
        source = "Both programs have them in memory" if about["group"] == "requests" else cached
        items = [
            f"Work: {work}.",
            f"Other loaders: {self.settings()}.",
            f"Versions: {versions}.",
            f"Data: {about['data']}, {self.megabytes()} MB of files. {source}.",
            f"Machine: {where}{load}.",
            f"Figures: medians of {rounds} alternating rounds{long}, lowest and highest in brackets." if counts else "",
            about.get("note", ""),
            f"{OLDER} measured before the last change to {', '.join(older)}." if older else "",
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
    """Formats a Markdown table without the rows that have no figures."""
    lines = [head, ["---"] * len(head), *(row for row in rows if any(row[1:]))]
    return "\n".join("".join(f"| {cell} " if cell else "| " for cell in line) + "|" for line in lines)
