"""The tables about other loaders in docs/performance.md: the speed ratios, and the loaders that have not been
measured."""

import ast
import re

from group import HERE, Group, table

PEERS = HERE.parent / "peers"
TORCH = "torch `DataLoader` + torchvision"
NVJPEG = "torchvision's `decode_jpeg` (nvJPEG)"
AUTO = "resnet18/warpfeed auto/N", "resnet18/warpfeed folder auto/N"
# For each group: what it measures, and the other loaders. A loader is a tuple of its name, its
# packages, its script and entry in benches/peers, the key of its result, and the keys of warpfeed's
# results for packed data and for plain files. `N` in a key stands for the number of cores, or for
# the number of images per request.
RIVALS = {
    "host": (
        "`u8` batches in host memory",
        [
            (TORCH, ["torch", "torchvision"], "cpu.py torchvision_u8", "torch", "packed", "folder"),
            ("FFCV", ["ffcv"], "cpu.py ffcv", "ffcv", "packed", "folder"),
            ("DALI, on the CPU", ["nvidia-dali-cuda130"], "cpu.py dali", "dali", "packed", "folder"),
        ],
    ),
    "device": (
        "`f16` batches on the GPU, decoded by the GPU; cores: {}",
        [
            (TORCH, ["torch", "torchvision"], "gpu.py torchvision", "torch/N", "packed/gpu/N", "folder/gpu/N"),
            ("DALI, `mixed`", ["nvidia-dali-cuda130"], "gpu.py dali_mixed", "dali/N", "packed/gpu/N", "folder/gpu/N"),
        ],
    ),
    "training": (
        'ResNet-18 training with `decode_on="auto"`; cores: {}',
        [
            (TORCH, ["torch", "torchvision"], None, "resnet18/torch/N", *AUTO),
            ("DALI, `mixed`", ["nvidia-dali-cuda130"], None, "resnet18/dali/N", *AUTO),
        ],
    ),
    "requests": (
        "a `Decoder`, one request at a time; JPEGs in a request: {}",
        [(NVJPEG, ["torch", "torchvision"], "decoder.py", "nvjpeg/N/rate", None, "warpfeed/N/rate")],
    ),
}


def measured():
    """Yields the group, the work, the other loader (name, packages, peer), and the keys of the
    three results."""
    for name, (work, rivals) in RIVALS.items():
        group = Group(name)
        numbers = {int(part) for key in group.about["figures"] for part in key.split("/") if part.isdigit()}
        for number in sorted(numbers, reverse=name != "requests") or [""]:
            for rival, packages, peer, *keys in rivals:
                figure, packed, same = (key and key.replace("N", str(number)) for key in keys)
                if group.rounds(figure):
                    yield group, work.format(number), (rival, packages, peer), figure, packed, same


def rivals():
    rows = []
    for group, work, (rival, packages, _), figure, packed, same in measured():
        versions = ", ".join(f"{package} {group.about['versions'][package]}" for package in packages)
        # Two significant digits, including the trailing zero of 1.0.
        ratios = [group.ratio(key, figure, "{:#.2g}").rstrip(".") for key in (same, packed)]
        rows.append([rival, work, *ratios, group.median(figure), versions, group.about["date"]])
    head = ["rival", "work", "ratio, plain files", "ratio, packed", "its images/s", "its version", "measured"]
    return table(head, rows)


def unmeasured():
    """The loaders in benches/peers without a measurement, with the version in the README of that
    folder."""
    done = {peer for *_, (_, _, peer), _, _, _ in measured()}
    pins = dict(re.findall(r"([\w-]+)==([\w.]+)", (PEERS / "README.md").read_text()))
    rows = []
    for script in ("cpu.py", "gpu.py"):
        for peer, packages, described in peers(script):
            if f"{script} {peer}" not in done:
                versions = ", ".join(f"{package} {pins[package]}" for package in packages)
                rows.append([f"`{script} {peer}`", described.rstrip("."), versions])
    return table(["peer", "what it is", "version"], rows)


def peers(script):
    """Returns the name, the packages and the description of each entry in a script's table
    `PEERS`."""
    tree = ast.parse((PEERS / script).read_text())
    described = {node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PEERS":
            for name, value in zip(node.value.keys, node.value.values):
                function, packages = value.elts[:2]
                yield name.value, ast.literal_eval(packages), described[function.id]


# Comparisons of warpfeed's default settings with DALI: the group, the work, DALI's key, and, for plain
# and for packed files, warpfeed's keys with the default and with `decode_on`.
DEFAULTS = [
    (
        "device",
        "batches on the GPU",
        "dali/N",
        ("folder/cpu/N", "folder/gpu/N"),
        ("packed/cpu/N", "packed/gpu/N"),
        "gpu",
    ),
    (
        "training",
        "ResNet-18 training",
        "resnet18/dali/N",
        ("resnet18/warpfeed folder/N", AUTO[1]),
        ("resnet18/warpfeed/N", AUTO[0]),
        "auto",
    ),
]


def slower():
    """The cases in which warpfeed is slower than DALI with its default settings."""
    rows = []
    for name, work, dali, plain, packed, decode_on in DEFAULTS:
        group = Group(name)
        counts = {int(key.rsplit("/", 1)[1]) for key in group.about["figures"]}
        for cores in sorted(counts, reverse=True):
            for data, keys in (("plain files", plain), ("packed", packed)):
                rival, default, other = (key.replace("N", str(cores)) for key in (dali, *keys))
                ratio = group.ratio(default, rival, "{:.2f}")
                if ratio and float(ratio) < 1:
                    with_option = f'{group.median(other)} (`"{decode_on}"`)'
                    rates = [group.median(default), group.median(rival), ratio, with_option]
                    rows.append([f"{work}, {data}, {cores} cores", *rates])
    return table(["images/s", "default", "DALI", "default / DALI", "with `decode_on`"], rows)


TABLES = {"rivals": rivals, "unmeasured": unmeasured, "slower": slower}
