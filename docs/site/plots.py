"""Draws plots of the measured tables, from benches/figures/*.json.

The positions of bars and dots are percentages, and the sizes of texts are in pixels. A plot therefore
fits any width, and its text stays readable on a phone. Colors are CSS variables, so that they follow
light and dark mode.
"""

import math
import re
import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches" / "figures"))

import compare
import pages
from group import Group, number

BLOCK = pages.BLOCK
# Height of a bar with its label, in pixels.
ROW = 40


def plot(name):
    """Returns the plot for the table called `name`, or an empty string if the table has no plot."""
    drawn = {"host": host, "device": device, "training": training, "requests": requests, "summary": summary}
    if name == "rivals":
        return ratios()
    panels = drawn[name]() if name in drawn else []
    return figure("".join(bars(*panel) for panel in panels if panel[2])) if panels else ""


def figure(content):
    return f'<figure class="plot"><div class="panels">{content}</div></figure>'


def bare(text):
    """Removes Markdown markup."""
    return re.sub(r"\*\*|`", "", text)


def plain(label):
    """Shortens the label of a table row, so that it fits on a phone."""
    label = bare(label).replace("class folders", "folders").replace("decoded by the", "by the")
    return label.replace('decode_on="auto"', "auto")


def cores(n):
    return f"{n} cores" if n > 1 else "1 core"


def rows(group, labeled):
    """Returns a bar for each figure that was measured: label, CSS class and rounds."""
    measured = [(plain(label), group.rounds(key)) for label, key in labeled]
    return [(label, "ours" if "warpfeed" in label else "theirs", rounds) for label, rounds in measured if rounds]


def host():
    group = Group("host")
    machine = group.about["machine"].partition(" (")[0]
    return [(f"batches in host memory, {machine}", "images/s", rows(group, pages.flat(pages.HOST)))]


def numbers(group):
    """Returns the measured numbers of cores, or the measured numbers of images per request."""
    return sorted({int(part) for key in group.about["figures"] for part in key.split("/") if part.isdigit()})


def device():
    group = Group("device")
    results = []
    for n in reversed(numbers(group)):
        labeled = [(label, f"{key}/{n}") for label, key in pages.flat(pages.DEVICE)]
        results.append((f"batches on the GPU, {cores(n)}", "images/s", rows(group, labeled)))
    return results


def training():
    group = Group("training")
    results = []
    for n in [n for n in reversed(numbers(group)) if group.rounds(f"resnet18/repeated/{n}")]:
        labeled = [(label, f"resnet18/{key}/{n}") for label, key in pages.flat(pages.TRAINING)]
        results.append((f"ResNet-18, {cores(n)}", "images/s", rows(group, labeled)))
    return results


def requests():
    group = Group("requests")
    results = []
    for unit, title, expected in (
        (
            "ms",
            "median time of a request",
            [("warpfeed Decoder", "warpfeed", "ms"), ("torchvision, nvJPEG", "nvjpeg", "ms")],
        ),
        (
            "images/s",
            "rate",
            [
                ("warpfeed, four in flight", "warpfeed", "four"),
                ("warpfeed, one at a time", "warpfeed", "rate"),
                ("torchvision, nvJPEG, one at a time", "nvjpeg", "rate"),
            ],
        ),
    ):
        for n in numbers(group):
            labeled = [(label, f"{who}/{n}/{what}") for label, who, what in expected]
            size = f"{n} images" if n > 1 else "1 image"
            results.append((f"{title}, {size}", unit, rows(group, labeled)))
    return results


def summary():
    """Returns the panels for the start page, with the rates on the most cores that were
    measured."""
    groups = Group("host"), Group("device"), Group("training")
    largest = [None, groups[1].most_cores(), groups[2].most_cores()]
    ours = [("warpfeed, plain files", "folder"), ("warpfeed, packed", "packed")]
    names = [*ours, ("torch + torchvision", "torch"), ("FFCV", "ffcv"), ("DALI", "dali")]
    panels = [
        ("batches in host memory, " + groups[0].about["machine"].partition(" (")[0], "images/s", rows(groups[0], names))
    ]
    n = largest[1]
    gpu = (groups[1].about["gpu"] or "").split(",")[0].removeprefix("NVIDIA ")
    names = [(label, f"{key}/gpu/{n}") for label, key in ours]
    names += [("torch + torchvision", f"torch/{n}"), ("DALI", f"dali/{n}")]
    panels.append((f"batches on the GPU, {gpu}, {cores(n)}", "images/s", rows(groups[1], names)))
    n = largest[2]
    names = [
        ("repeated", "a batch on the device, repeated"),
        ("warpfeed folder", "warpfeed, plain files"),
        ("warpfeed", "warpfeed, packed"),
        ("torch", "torch + torchvision"),
        ("dali", "DALI"),
    ]
    names = [(label, f"resnet18/{key}/{n}") for key, label in names]
    panels.append((f"ResNet-18 training, {gpu}, {cores(n)}", "images/s", rows(groups[2], names)))
    return panels


def bars(title, unit, result):
    """Draws a panel. Each row has a bar from 0 to the median, and a line from the lowest to the highest
    round."""
    largest = max(max(rounds) for _, _, rounds in result)
    drawn, text = [], []
    for i, (label, kind, rounds) in enumerate(result):
        rounds = sorted(rounds)
        middle = (rounds[(len(rounds) - 1) // 2] + rounds[len(rounds) // 2]) / 2
        top, value = i * ROW, number(middle, unit)
        low, height, width = (100 * x / largest for x in (rounds[0], rounds[-1], middle))
        text.append(f"{label}: {value}")
        drawn.append(
            f'<text x="0" y="{top + 15}">{escape(label)}</text>'
            f'<text x="100%" y="{top + 15}" class="value">{value}</text>'
            f'<rect x="0" y="{top + 22}" width="100%" height="10" rx="2" class="track"/>'
            f'<rect x="0" y="{top + 22}" width="{width:.2f}%" height="10" rx="2" class="{kind}"/>'
            f'<line x1="{low:.2f}%" x2="{height:.2f}%" y1="{top + 27}" y2="{top + 27}" class="spread"/>'
        )
    spoken = escape(f"{title}, {unit}. " + "; ".join(text), quote=True)
    svg = f'<svg width="100%" height="{len(result) * ROW}" role="img" aria-label="{spoken}">{"".join(drawn)}</svg>'
    return f'<div class="panel"><p>{escape(title)} <span>{unit}</span></p>{svg}</div>'


def ratios():
    """Plots warpfeed's rate divided by the rate of each rival, on a logarithmic axis, for packed data and for
    plain files."""
    results = []
    for group, work, (rival, _, _), theirs, packed, same in compare.measured():
        ratios_of = [
            (kind, key and group.ratio(key, theirs, "{:.6g}")) for kind, key in (("plain", same), ("packed", packed))
        ]
        dots = [(kind, float(ratio)) for kind, ratio in ratios_of if ratio]
        results.append((bare(work).replace("; ", ", "), bare(rival), dots))
    logs = [math.log10(ratio) for *_, dots in results for _, ratio in dots]
    low, height = math.floor(min(logs)), math.floor(max(logs)) + 1

    def place(ratio):
        return f"{1 + 97 * (math.log10(ratio) - low) / (height - low):.2f}%"

    tall, drawn, text = 58, [], []
    bottom = len(results) * tall
    for power in range(low, height + 1):
        x = place(10.0**power)
        anchor = "end" if power == height else "middle" if power > low else "start"
        # A tick spans only its own row, because longer lines would cross the text.
        kind = "one" if power == 0 else "grid"
        for top in range(0, bottom, tall):
            drawn.append(f'<line x1="{x}" x2="{x}" y1="{top + 38}" y2="{top + 54}" class="{kind}"/>')
        drawn.append(f'<text x="{x}" y="{bottom + 20}" text-anchor="{anchor}">{10.0**power:g}</text>')
    for top, (work, rival, dots) in zip(range(0, bottom, tall), results):
        values = ", ".join(f"{ratio:.0f}" if ratio >= 99.5 else f"{ratio:#.2g}".rstrip(".") for _, ratio in dots)
        text.append(f"{rival}, {work}: {values}")
        drawn.append(f'<text x="0" y="{top + 16}">{escape(rival)}</text>')
        drawn.append(f'<text x="100%" y="{top + 16}" class="value">{values}</text>')
        drawn.append(f'<text x="0" y="{top + 33}" class="small">{escape(work)}</text>')
        drawn.append(f'<line x1="0" x2="100%" y1="{top + 46}" y2="{top + 46}" class="track"/>')
        drawn += [f'<circle cx="{place(ratio)}" cy="{top + 46}" r="5" class="{kind}"/>' for kind, ratio in dots]
    title = "warpfeed's rate divided by the rival's"
    spoken = escape(f"{title}. " + "; ".join(text), quote=True)
    svg = f'<svg width="100%" height="{bottom + 26}" role="img" aria-label="{spoken}">{"".join(drawn)}</svg>'
    kinds = (("plain", "plain files"), ("packed", "packed data"))
    key = " ".join(f'<span class="key"><i class="{kind}"></i>{name}</span>' for kind, name in kinds)
    return f'<figure class="plot wide"><p>{title}, on a logarithmic axis {key}</p>{svg}</figure>'
