"""Renders the tables of the Markdown pages from benches/figures/*.json."""

import pathlib
import re
import sys

import compare
from group import HERE, MARK, OLDER, PATHS, Group, changed, table

ROOT = HERE.parents[1]
DOCS = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", "python/README.md", *DOCS]
BLOCK = re.compile(r"<!-- figures:(\w+) -->\n(.*?)<!-- /figures -->", re.S)
# Tables of benches/RESULTS.md that other pages quote.
RESULT = re.compile(r"<!-- result:(\w+) -->\n(.*?)<!-- /result -->", re.S)
RESULTS = dict(RESULT.findall((HERE.parent / "RESULTS.md").read_text()))
# Rates, latencies and speed-ups in prose.
CLAIM = re.compile(
    r"\d[\d,.]*\s*(?:(?:images|samples|batches)(?:/s|\sa\ssecond)|(?:ms|µs|us|ns)\b|[GM]B/s)"
    r"|\d[\d,.]*\s+times\s+(?:as|the|faster)|\bhalf\s+as\s+(?:fast|many)",
)


TORCH = "torch `DataLoader` + torchvision"
# Name, result for plain files, and result for packed data or the loader's own format.
HOST = [
    ("**warpfeed**", "folder", "packed"),
    (TORCH, "torch", None),
    ("DALI, on the CPU", "dali", None),
    ("FFCV, its own format, JPEG quality 90", None, "ffcv"),
]
DEVICE = [
    ("**warpfeed**, decoded by the GPU", "folder/gpu", "packed/gpu"),
    ("**warpfeed**, decoded by the GPU, 1% large photographs", "folder-tail/gpu", "packed-tail/gpu"),
    ("**warpfeed**, decoded by the workers", "folder/cpu", "packed/cpu"),
    ("DALI, `mixed` decoder", "dali", None),
    (TORCH, "torch", None),
]
LARGE = (
    ". The large photographs are enlarged to between 7 and 24 megapixels and saved at quality 90. The wait is how"
    " long an otherwise idle consumer waits for the next batch"
)
DEVICE_MS = [
    ("GPU time to decode and convert a batch, ms", "folder/device-time", "packed/device-time"),
    ("wait for a batch, 99th percentile, ms", "folder/wait", "packed/wait"),
    ("wait for a batch, 99th percentile, 1% large photographs, ms", "folder-tail/wait", "packed-tail/wait"),
]
REQUESTS = [
    ("**warpfeed** `Decoder`, one request at a time: median, ms", "warpfeed", "ms"),
    ("torchvision's `decode_jpeg(device=\"cuda\")` and transforms: median, ms", "nvjpeg", "ms"),
    ("**warpfeed** `Decoder`: 99th percentile, ms", "warpfeed", "99"),
    ("torchvision: 99th percentile, ms", "nvjpeg", "99"),
    ("**warpfeed** `Decoder`, one request at a time: images/s", "warpfeed", "rate"),
    ("torchvision, one request at a time: images/s", "nvjpeg", "rate"),
    ("**warpfeed** `Decoder`, four requests in flight: images/s", "warpfeed", "four"),
]
TRAINING = [
    ("one batch on the device, replayed (no loading)", "repeated", None),
    ("**warpfeed**", "warpfeed folder", "warpfeed"),
    ("**warpfeed**, `decode_on=\"auto\"`", "warpfeed folder auto", "warpfeed auto"),
    ("DALI, `mixed` decoder", "dali", None),
    (TORCH, "torch", None),
]


def flat(rows):
    """Returns pairs of a row's name and the key of a result."""
    for label, plain, packed in rows:
        if plain:
            yield label + (", plain files" if packed else ""), plain
        if packed:
            yield label + (", packed" if plain else ""), packed


def columns(kinds, cores):
    return [f"{kind}, {n} core{'s' * (n > 1)}" for kind in kinds for n in cores]


def cells(group, cores, *keys):
    return [group.cell(f"{key}/{n}") if key else "" for key in keys for n in cores]


def host():
    group = Group("host")
    body = [
        [label, *(cell for key in keys for cell in ((group.cell(key), group.ratio(key, "torch")) if key else ("", "")))]
        for label, *keys in HOST
    ]
    caption = group.caption(
        "random-resized crop to 224 pixels and flip, `u8` batches of 64 in host memory, one worker per core"
    )
    head = ["batches in host memory, images/s", "plain files", "times torch", "packed or own format", "times torch"]
    return table(head, body) + "\n\n" + caption


def device():
    group = Group("device")
    cores = [n for n in (16, 4, 1) if group.rounds(f"packed/gpu/{n}")]
    body = [[label, *cells(group, cores, plain, own)] for label, plain, own in [*DEVICE, *DEVICE_MS]]
    caption = group.caption(
        "random-resized crop to 224 pixels and flip, batches of 256, normalized `f16` NCHW on the device, the"
        " default number of workers" + (LARGE if group.rounds(f"folder-tail/gpu/{cores[0]}") else "")
    )
    return table(["images/s", *columns(("plain files", "packed"), cores)], body) + "\n\n" + caption


def requests():
    group = Group("requests")
    sizes = [n for n in (1, 8, 64, 256) if group.rounds(f"warpfeed/{n}/ms")]
    body = [[label, *(group.cell(f"{loader}/{n}/{quantity}") for n in sizes)] for label, loader, quantity in REQUESTS]
    caption = group.caption(
        "JPEGs in memory to 224-pixel center crops, normalized `f16` NCHW on the device, on all cores"
    )
    return table(["images in a request", *map(str, sizes)], body) + "\n\n" + caption


def training():
    group = Group("training")
    cores = [n for n in (16, 8, 4, 2) if group.rounds(f"resnet18/repeated/{n}")]

    def cell(feed, n):
        if feed is None:
            return ""
        share = group.ratio(f"resnet18/{feed}/{n}", f"resnet18/repeated/{n}", "{:.1%}")
        rate = group.cell(f"resnet18/{feed}/{n}")
        return f"{rate}, {share}" if rate and feed != "repeated" else rate

    body = [[label, *(cell(feed, n) for feed in feeds for n in cores)] for label, *feeds in TRAINING]
    caption = group.caption(
        "ResNet-18 in PyTorch, bf16 autocast, channels last, batches of 256. Percentages are relative to replaying one "
        "batch. It contains random numbers, with which a step takes a little longer than with photographs, so a loader "
        "can exceed 100%"
    )
    return table(["training, images/s", *columns(("plain files", "packed"), cores)], body) + "\n\n" + caption


def summary():
    """Renders the table of the README: one row each for host, device and training, with medians
    only."""
    groups = Group("host"), Group("device"), Group("training")
    gpus = [(group.about["gpu"] or "").split(",")[0].removeprefix("NVIDIA ") for group in groups]
    core_counts = [groups[0].about["machine"].split(" ")[0], *(group.most_cores() for group in groups[1:])]
    repeated = groups[2].median(f"resnet18/repeated/{core_counts[2]}")
    rows = [
        (f"{core_counts[0]} cores, `u8` batches in host memory", ["folder", "torch", "dali", "packed", "ffcv"]),
        (
            f"{gpus[1]} and {core_counts[1]} cores, `f16` batches on the GPU, JPEGs decoded by the GPU",
            [f"{name}/{core_counts[1]}" for name in ("folder/gpu", "torch", "dali", "packed/gpu", "ffcv")],
        ),
        (
            f"ResNet-18 training in PyTorch, {gpus[2]} and {core_counts[2]} cores ({repeated} without loading)",
            [f"resnet18/{name}/{core_counts[2]}" for name in ("warpfeed folder", "torch", "dali", "warpfeed", "ffcv")],
        ),
    ]
    body = [[label, *map(group.median, keys)] for group, (label, keys) in zip(groups, rows)]
    head = ["", "warpfeed, plain files", "torch + torchvision, plain files", "DALI, plain files"]
    head += ["warpfeed, packed", "FFCV, its own format"]
    shown_columns = [i for i in range(len(head)) if i == 0 or any(row[i] for row in body)]
    older_rows = [f"{i}" for i, group in enumerate(groups, 1) if group.older()]
    has_several = len(older_rows) > 1
    row_text = f"row {''.join(older_rows)} predates"
    if has_several:
        row_text = f"rows {', '.join(older_rows[:-1])} and {older_rows[-1]} predate"
    row_text = "all rows predate" if len(older_rows) == len(groups) else row_text
    note = f"\n\n{OLDER} {row_text} the latest change to the code that was measured." if older_rows else ""
    return table([head[i] for i in shown_columns], [[row[i] for i in shown_columns] for row in body]) + note


TABLES = {"summary": summary, "host": host, "device": device, "requests": requests, "training": training}
TABLES |= compare.TABLES


def render_tables(text):
    """Renders the tables with measurements, and copies those from benches/RESULTS.md."""

    def content(name):
        return RESULTS[name].rstrip() if name in RESULTS else TABLES[name]()

    return BLOCK.sub(lambda m: f"<!-- figures:{m[1]} -->\n{content(m[1])}\n<!-- /figures -->", text)


def claims(text):
    """Returns the rates, latencies and speed-ups outside of a page's tables and code, with their
    line numbers."""
    blank = lambda m: re.sub(r"[^\n]", " ", m[0])  # noqa: E731
    prose = re.sub(r"^```.*?^```", blank, BLOCK.sub(blank, text), flags=re.S | re.M)
    return [(prose.count("\n", 0, m.start()) + 1, " ".join(m[0].split())) for m in CLAIM.finditer(prose)]


def render():
    for page in PAGES:
        path = ROOT / page
        path.write_text(render_tables(path.read_text()))
    return 0


def age(group):
    commit = group.about["commit"]
    paths = changed(group.name, commit)
    if paths is None:
        return f"{group.name}: commit {commit} is not in this clone, so its table may be outdated"
    if paths:
        return f"{group.name}: measured before the last change to {', '.join(paths)}, so `render` marks its table"
    return f"{group.name}: measured at {commit}, and the code that it measures has not changed since"


def check():
    problems = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        if MARK.sub("", text) != MARK.sub("", render_tables(text)):
            problems.append(f"{page}: a table differs from benches/figures/*.json or benches/RESULTS.md: run `python3 benches/figures render`")
        for line, claim in claims(text):
            problems.append(f"{page}:{line}: `{claim}` is stated outside of a measured table")
    shown_tables = {name for page in PAGES for name, _ in BLOCK.findall((ROOT / page).read_text())}
    for name in sorted({*TABLES, *RESULTS} - shown_tables):
        problems.append(f"no page shows the table `{name}`")
    for group in PATHS:
        print(age(Group(group)))
    print("\n".join(problems) or "every figure on the pages is measured", file=sys.stderr if problems else sys.stdout)
    return 1 if problems else 0
