"""Renders the tables of the Markdown pages from benches/figures/*.json."""

import pathlib
import re
import sys

import compare
from group import HERE, Group, table

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


# Rows of the tables: name and figure.
HOST = [
    ("**warpfeed**, packed LMDB", "packed"),
    ("**warpfeed**, class folders", "folder"),
    ("torch `DataLoader` + torchvision", "torch"),
    ("FFCV, its own JPEGs of quality 90", "ffcv"),
    ("DALI, on the CPU", "dali"),
]
DEVICE = [
    ("**warpfeed**, packed LMDB, decoded by the GPU", "packed/gpu"),
    ("**warpfeed**, class folders, decoded by the GPU", "folder/gpu"),
    ("**warpfeed**, packed LMDB, decoded by the workers", "packed/cpu"),
    ("**warpfeed**, class folders, decoded by the workers", "folder/cpu"),
    ("DALI, `mixed` decoder", "dali"),
    ("torch `DataLoader` + torchvision", "torch"),
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
    ("one batch on the device, repeated", "repeated"),
    ("**warpfeed**, packed LMDB", "warpfeed"),
    ("**warpfeed**, packed LMDB, `decode_on=\"auto\"`", "warpfeed auto"),
    ("DALI, `mixed` decoder", "dali 0.9"),
    ("torch `DataLoader` + torchvision", "torch"),
]


def host():
    group = Group("host")
    body = [[label, group.cell(key), group.ratio(key, "torch")] for label, key in HOST]
    caption = group.caption(
        "random-resized crop to 224 pixels and flip, `u8` batches of 64 in host memory, one worker per core",
        "torch has one process per core, `prefetch_factor=4` and persistent workers; FFCV has `os_cache=True` and"
        " `batches_ahead=3`; DALI has one thread per core and `prefetch_queue_depth=4`",
    )
    return table(["batches in host memory", "images/s", "times torch's rate"], body) + "\n\n" + caption


def device():
    group = Group("device")
    cores = [n for n in (16, 4, 1) if group.rounds(f"packed/gpu/{n}")]
    body = [[label, *(group.cell(f"{key}/{n}") for n in cores)] for label, key in DEVICE]
    for store, label in (("packed", "packed LMDB"), ("folder", "class folders")):
        key = f"{store}/device-time"
        body.append([f"GPU time to decode and convert a batch, {label}, ms", *(group.cell(f"{key}/{n}") for n in cores)])
    caption = group.caption(
        "random-resized crop to 224 pixels and flip, batches of 256, normalized `f16` NCHW on the device, one"
        " worker per core. warpfeed repeats the dataset 200 times within an epoch",
        "torch has one process per core, `prefetch_factor=4`, persistent workers and page-locked memory, and"
        " normalizes on the GPU; DALI has one thread per core, `hw_decoder_load=0.65` and"
        " `prefetch_queue_depth=4`. Their epochs have the photographs once, so their queues drain more often",
    )
    return table(["images/s, with", *(f"{n} cores" if n > 1 else "1 core" for n in cores)], body) + "\n\n" + caption


def requests():
    group = Group("requests")
    sizes = [n for n in (1, 8, 64, 256) if group.rounds(f"warpfeed/{n}/ms")]
    body = [[label, *(group.cell(f"{who}/{n}/{what}") for n in sizes)] for label, who, what in REQUESTS]
    caption = group.caption(
        "JPEGs in memory to center crops of 224 pixels, normalized `f16` NCHW on the device, on all cores",
        "torchvision resizes, crops and stacks on the GPU, one request at a time. It cannot keep several in flight",
    )
    return table(["images in a request", *map(str, sizes)], body) + "\n\n" + caption


def training():
    group = Group("training")
    cores = [n for n in (16, 8, 4, 2) if group.rounds(f"resnet18/repeated/{n}")]

    def cell(feed, n):
        share = group.ratio(f"resnet18/{feed}/{n}", f"resnet18/repeated/{n}", "{:.1%}").replace("%", " %")
        rate = group.cell(f"resnet18/{feed}/{n}")
        return f"{rate}, {share}" if rate and feed != "repeated" else rate

    body = [[label, *(cell(feed, n) for n in cores)] for label, feed in TRAINING]
    caption = group.caption(
        "ResNet-18 in PyTorch, bf16 autocast, channels last, batches of 256. The share is relative to the repeated batch",
        "torch has one process per core, `prefetch_factor=2`, persistent workers, page-locked memory, and epochs of"
        " at least 50,000 photographs; DALI has one thread per core, `hw_decoder_load=0.9` and"
        " `prefetch_queue_depth=4`",
    )
    return table(["training, images/s, with", *(f"{n} cores" for n in cores)], body) + "\n\n" + caption


def summary():
    """Renders the table of the README: one row per group, with medians only."""
    groups = Group("host"), Group("device"), Group("training")
    gpus = [(group.about["gpu"] or "").split(",")[0].removeprefix("NVIDIA ") for group in groups]
    most = [groups[0].about["machine"].split(" ")[0], *(group.most_cores() for group in groups[1:])]
    repeated = groups[2].median(f"resnet18/repeated/{most[2]}")
    rows = [
        (f"{most[0]} cores, `u8` batches in host memory", ["packed", "folder", "torch", "ffcv", "dali"]),
        (
            f"{gpus[1]} and {most[1]} cores, `f16` batches on the GPU, JPEGs decoded by the GPU",
            [f"{name}/{most[1]}" for name in ("packed/gpu", "folder/gpu", "torch", "ffcv", "dali")],
        ),
        (
            f"ResNet-18 training in PyTorch, {gpus[2]} and {most[2]} cores ({repeated} without loading)",
            [f"resnet18/{name}/{most[2]}" for name in ("warpfeed", "warpfeed folder", "torch", "ffcv", "dali 0.9")],
        ),
    ]
    body = [[label, *map(group.median, keys)] for group, (label, keys) in zip(groups, rows)]
    head = ["", "warpfeed, packed", "warpfeed, plain files", "torch + torchvision", "FFCV", "DALI"]
    kept = [i for i in range(len(head)) if i == 0 or any(row[i] for row in body)]
    return table([head[i] for i in kept], [[row[i] for i in kept] for row in body])


TABLES = {"summary": summary, "host": host, "device": device, "requests": requests, "training": training}
TABLES |= compare.TABLES


def rendered(text):
    """Renders all tables of a page: those with measurements, and those copied from benches/RESULTS.md."""

    def content(name):
        return RESULTS[name].rstrip() if name in RESULTS else TABLES[name]()

    return BLOCK.sub(lambda m: f"<!-- figures:{m[1]} -->\n{content(m[1])}\n<!-- /figures -->", text)


def claims(text):
    """Finds rates, latencies and speed-ups outside of a page's tables and code, with their line numbers."""
    blank = lambda m: re.sub(r"[^\n]", " ", m[0])  # noqa: E731
    prose = re.sub(r"^```.*?^```", blank, BLOCK.sub(blank, text), flags=re.S | re.M)
    return [(prose.count("\n", 0, m.start()) + 1, " ".join(m[0].split())) for m in CLAIM.finditer(prose)]


def render():
    for page in PAGES:
        path = ROOT / page
        path.write_text(rendered(path.read_text()))
    return 0


def check():
    bad = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        if text != rendered(text):
            bad.append(f"{page}: a table differs from benches/figures/*.json or benches/RESULTS.md: run `python3 benches/figures render`")
        for line, claim in claims(text):
            bad.append(f"{page}:{line}: `{claim}` is stated outside of a measured table")
    shown = {name for page in PAGES for name, _ in BLOCK.findall((ROOT / page).read_text())}
    for name in sorted({*TABLES, *RESULTS} - shown):
        bad.append(f"no page shows the table `{name}`")
    print("\n".join(bad) or "every figure on the pages is measured", file=sys.stderr if bad else sys.stdout)
    return 1 if bad else 0
