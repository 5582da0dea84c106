"""For each public test file of a format, warpfeed must read the same values as an independent
library, or reject the file with an error that names the file. tests/fixtures/corpora.txt lists the
files that are rejected or have different values. Any other rejection or difference fails the test,
except for files in the image corpora without the extension of a supported format.

``WARPFEED_CORPORA`` names a folder with any of these checkouts: Apache's ``parquet-testing`` and
``arrow-testing``, ``pngsuite`` (with ``json``, the expected pixels), ``libjpeg-turbo`` and
``Pillow``. With ``WARPFEED_BLESS=1``, the test writes the list. Values differ for several reasons:
Pillow follows orientations in XMP and in PNG text chunks, truncates 16-bit
values to 8 bits before it divides by alpha or converts CMYK, and reads signed 8-bit values as
unsigned.
"""

from __future__ import annotations

import collections
import faulthandler
import hashlib
import io
import json
import os
import re
import shutil
import warnings
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
from conftest import ROOT, missing, need
from warpfeed import Augment, DenseMap, Loader, TableOptions, WarpfeedError

LIST = ROOT / "tests" / "fixtures" / "corpora.txt"
OPTIONS: dict[str, Any] = {"batch_size": 1, "output": "numpy", "num_workers": 1, "retries": 0}
#: A file in an image corpus with one of these extensions must be listed if it is rejected or has
#: different values.
IMAGES = {".bmp", ".dib", ".gif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
#: Maximum seconds per file. After that, the process prints the stack of each thread and exits.
SECONDS = 60


def corpus(name: str) -> Path:
    folder = Path(os.environ.get("WARPFEED_CORPORA", "")) / name
    if "WARPFEED_CORPORA" not in os.environ or not folder.is_dir():
        missing("corpora", f"no folder {name} in WARPFEED_CORPORA")
    return folder


class Refused(Exception):
    """warpfeed rejects a file, or reads a file that the oracle cannot read."""


class Outcomes:
    def __init__(self, name: str) -> None:
        self.name, self.root, self.found, self.other = name, corpus(name), collections.Counter[str](), {}
        self.wrong: list[str] = []

    def check(self, path: Path, compare: Callable[[], str], listed: bool = True) -> None:
        """``compare`` must return a description of the difference, or an empty string if all values
        are equal."""
        self.note(path, self.outcome(compare), listed=listed)

    def check_all(self, path: Path, compare: dict[str, Callable[[], str]]) -> None:
        """Checks all columns of a file. If they have the same outcome, the list contains one line
        for the file."""
        results = {column: self.outcome(each) for column, each in compare.items()}
        alike = {outcome.replace(f'"{column}"', "…") for column, outcome in results.items()}
        if len(alike) == 1:
            self.note(path, alike.pop(), count=len(results))
            return
        for column, outcome in results.items():
            self.note(path, outcome, f" [{column}]")

    @staticmethod
    def outcome(compare: Callable[[], str]) -> str:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return compare() or "equal"
        except Refused as e:
            return str(e)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def note(self, path: Path, outcome: str, of: str = "", count: int = 1, listed: bool = True) -> None:
        name = f"{self.name}/{path.relative_to(self.root).as_posix()}{of}"
        self.found[re.sub(r"\d+", "N", outcome) if listed else "not in a supported format"] += count
        if outcome != "equal" and listed:
            self.other[name] = outcome

    def finish(self) -> None:
        """Prints the outcomes, and compares the list with the files whose values are not equal."""
        print(f"\n{self.name}: {self.found.total()} checked, {self.found['equal']} equal")
        for outcome, count in self.found.most_common():
            if outcome != "equal":
                print(f"{count:6} {outcome}")
        lines = LIST.read_text().splitlines() if LIST.exists() else []
        mine = [f"{name}: {outcome}" for name, outcome in sorted(self.other.items())]
        if os.environ.get("WARPFEED_BLESS"):
            others = [line for line in lines if not line.startswith(self.name + "/")]
            LIST.write_text("".join(line + "\n" for line in sorted(others + mine)))
        else:
            known = {line for line in lines if line.startswith(self.name + "/")}
            new, gone = sorted(set(mine) - known), sorted(known - set(mine))
            assert not new and not gone, "\n".join(["not listed:", *new, "listed, but not found:", *gone])
        assert self.found["equal"] > 0


def refusal(e: WarpfeedError, file: str) -> Refused:
    """Returns the cause of an error, which must name the file."""
    text = str(e)
    assert e.kind in {"decode", "source", "config", "limit"}, f"{e.kind}: {text}"
    assert file in text, text
    reason = text.rpartition(f"{file}: {e.kind}: ")[2] or text.rpartition(f": {e.kind}: ")[2]
    return Refused(f"refused: {reason.encode('ascii', 'backslashreplace').decode()[:160]}")


class One:
    """A source that contains a single image."""

    def __init__(self, name: str, content: bytes) -> None:
        self.sample = {"image": content, "label": 0, "key": name}

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.sample


def decoded(path: Path, **options: Any) -> np.ndarray:
    """Returns the pixels after the EXIF rotation."""
    with Loader(One(path.name, path.read_bytes()), augment=Augment.resize(8), **OPTIONS, **options) as loader:
        try:
            return loader.sample(0)["image"]
        except WarpfeedError as e:
            raise refusal(e, f"({path.name})") from None


def stored(path: Path, shape: tuple[int, ...], channels: int) -> np.ndarray:
    """Returns the pixels as stored, of shape (height, width, channels)."""
    options = {**OPTIONS, "fields": {"image": DenseMap(channels, image=True)}, "drop_field": ["label"]}
    with Loader(One(path.name, path.read_bytes()), augment=Augment.pass_through(shape[:2]), **options) as loader:
        try:
            (batch,) = loader
        except WarpfeedError as e:
            raise refusal(e, f"({path.name})") from None
        values = (batch["image"] if isinstance(batch, dict) else batch[0])[0]
        return values.reshape(*shape[:2], -1)


def same(actual: np.ndarray, expected: np.ndarray) -> str:
    if actual.shape != expected.shape:
        return f"different: the shape {actual.shape} instead of {expected.shape}"
    return "" if np.array_equal(actual, expected) else "different: the values"


def with_pillow(path: Path) -> str:
    """Compares a file with Pillow. Ignores alpha, and compares only the upper 8 bits of 16-bit
    images. Files that cannot be read as an image are compared as a ``DenseMap``."""
    image, ops = need("PIL.Image"), need("PIL.ImageOps")
    actual, why = None, Refused()
    try:
        actual = decoded(path)
    except Refused as e:
        why = e
    try:
        with image.open(path) as opened:
            opened.seek(0)
            opened.load()
            upright = ops.exif_transpose(opened)
    except Exception as e:  # Pillow raises errors of many types
        if actual is None:
            raise why from None
        raise Refused(f"read by warpfeed, but not by Pillow ({type(e).__name__})") from None
    if "warpfeed.DenseMap reads" in str(why) and len(upright.getbands()) == 1:
        expected = np.asarray(upright)[:, :, None].astype(np.float32)
        if different := same(stored(path, expected.shape, 1), expected):
            return f"{different} (DenseMap)"
        if "convert_to_u8" not in str(why):
            return ""
    if deep := "convert_to_u8" in str(why):
        actual = decoded(path, convert_to_u8=True)
    if actual is None:
        raise why
    if upright.mode.startswith("I;16"):
        expected = np.repeat(np.asarray(upright)[:, :, None] >> 8, 3, 2)
    else:
        alpha = "A" in upright.mode.upper() or upright.mode == "P"
        expected = np.asarray(upright.convert("RGBA" if alpha else "RGB"))[:, :, :3]
    different = same(actual, expected.astype(np.uint8))
    return different + " (upper 8 bits)" if different and deep else different


def images(outcomes: Outcomes, folder: Path, compare: Callable[[Path], str]) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        outcomes.check(path, lambda: compare(path), listed=path.suffix.lower() in IMAGES)
    outcomes.finish()


def test_pngsuite() -> None:
    outcomes = Outcomes("pngsuite")

    def compare(path: Path) -> str:
        values = outcomes.root / "json" / f"{path.stem}.json"
        try:
            actual = decoded(path)
        except Refused as e:
            if "convert_to_u8" not in str(e):
                raise
            actual = None
        size = decoded(path, convert_to_u8=True).shape[:2]
        expected = np.array(json.loads(values.read_text())).reshape(*size, 4)
        if actual is not None:
            return same(actual, expected[:, :, :3].astype(np.uint8))
        # The JSON contains four 16-bit channels; the image may have fewer.
        channels = {0: [0], 2: [0, 1, 2], 4: [0, 3], 6: [0, 1, 2, 3]}[path.read_bytes()[25]]
        actual = stored(path, size, len(channels))
        return same(actual, expected[:, :, channels].astype(np.float32))

    images(outcomes, outcomes.root / "png", compare)


def test_libjpeg_turbo() -> None:
    """Compares with the MD5 sums that libjpeg-turbo's own tests contain for the output of its
    programs."""
    outcomes, image = Outcomes("libjpeg-turbo"), need("PIL.Image")
    folder, tests = outcomes.root / "testimages", (outcomes.root / "CMakeLists.txt").read_text()
    listed = dict(re.findall(r"set\(MD5_PPM_(\w+)\s+([0-9a-f]{32})\)", tests))

    def md5(pixels: np.ndarray) -> str:
        header = f"P6\n{pixels.shape[1]} {pixels.shape[0]}\n255\n".encode()
        return hashlib.md5(header + np.ascontiguousarray(pixels).tobytes()).hexdigest()

    def made(mode: str = "RGB", **options: Any) -> np.ndarray:
        """Returns the pixels of the file that ``cjpeg`` would write. The file is made with Pillow,
        which is also based on libjpeg-turbo."""
        out = io.BytesIO()
        with image.open(folder / "testorig.ppm") as original:
            original.convert(mode).save(out, "JPEG", quality=75, **options)
        with Loader(One("made", out.getvalue()), augment=Augment.resize(8), **OPTIONS) as loader:
            return loader.sample(0)["image"]

    full = made(subsampling="4:4:4")
    assert md5(np.delete(decoded(folder / "testorig.jpg"), np.s_[15:32], 0)) == listed["420_ISLOW_SKIP15_31"]
    assert md5(made(keep_rgb=True)) == listed["RGB_ISLOW"]
    assert md5(np.delete(full, np.s_[1:7], 0)) == listed["444_ISLOW_SKIP1_6"]
    assert md5(made(subsampling="4:4:4", progressive=True)[13:111, 8:111]) == listed["444_ISLOW_PROG_CROP98x98_13_13"]
    assert md5(made("L")) == listed["GRAY_ISLOW_RGB"]
    images(outcomes, folder, with_pillow)


def test_pillow() -> None:
    outcomes = Outcomes("Pillow")
    images(outcomes, outcomes.root / "Tests" / "images", with_pillow)


def as_stored(kind: Any) -> Any:
    """Returns the type in which values are stored, such as integers for times."""
    pa = need("pyarrow")
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return as_stored(kind.storage_type)
    if types.is_dictionary(kind):
        return as_stored(kind.value_type)
    if types.is_date32(kind) or types.is_time32(kind):
        return pa.int32()
    if types.is_temporal(kind) and not types.is_interval(kind):
        return pa.int64()
    if types.is_struct(kind):
        return pa.struct([kind.field(n).with_type(as_stored(kind.field(n).type)) for n in range(kind.num_fields)])
    if types.is_map(kind):
        entries = [kind.key_field, kind.item_field]
        return pa.list_(pa.struct([field.with_type(as_stored(field.type)) for field in entries]))
    if types.is_fixed_size_list(kind):
        return pa.list_(as_stored(kind.value_type), kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        return (pa.list_ if types.is_list(kind) else pa.large_list)(as_stored(kind.value_type))
    return kind


def columns_of(name: str, kind: Any, values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yields the leaf columns: each field of a struct, or of a list of structs, is a separate
    column."""
    inner, depth = kind, 0
    while hasattr(inner, "value_type") and not hasattr(inner, "index_type"):
        inner, depth = inner.value_type, depth + 1
    if not need("pyarrow").types.is_struct(inner):
        yield name, values
        return

    def picked(value: Any, child: str, depth: int) -> Any:
        if value is None:
            return None
        return value[child] if depth == 0 else [picked(item, child, depth - 1) for item in value]

    for child in inner:
        of = child.type
        for _ in range(depth):
            of = need("pyarrow").list_(of)
        yield from columns_of(f"{name}.{child.name}", of, [picked(value, child.name, depth) for value in values])


def has_null(value: Any) -> bool:
    return isinstance(value, list) and any(item is None or has_null(item) for item in value)


def flat(value: Any) -> Any:
    """Converts a value from a sample or from pyarrow to Python lists and numbers."""
    if isinstance(value, np.ndarray):
        return flat(value.tolist())
    if isinstance(value, list):
        return [flat(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return "nan" if np.isnan(value) else float(value)
    return value.item() if isinstance(value, np.generic) else value


def read(path: Path, column: str, expected: list[Any]) -> str:
    """Compares a column with the values that pyarrow reads. Rows that warpfeed rejects because of a
    null in a list are skipped."""
    try:
        only = TableOptions(columns=[column], without_label=True)
        loader = Loader(path, augment=Augment.resize(8), table=only, **OPTIONS)
    except WarpfeedError as e:
        raise refusal(e, path.name) from None
    with loader:
        if len(loader.dataset) != len(expected):
            return f"different: {len(loader.dataset)} rows instead of {len(expected)}"
        for row, value in enumerate(expected):
            try:
                sample = loader.sample(row)
            except WarpfeedError as e:
                if has_null(value) and "of a list is null" in str(e):
                    continue
                raise refusal(e, path.name) from None
            actual = [flat(content) for name, content in sample.items() if name not in ("id", "key", "label")]
            if actual != ([] if value is None else [flat(value)]):
                return f"different: row {row} has {actual!r:.60} instead of {flat(value)!r:.60}"
    return ""


def table(outcomes: Outcomes, path: Path, opened: Path, oracle: Callable[[Path], Any], maps: bool) -> None:
    """Compares all columns of a file. A file that the oracle cannot read must be rejected or
    listed."""

    def alone(error: Exception, column: str = "") -> Callable[[], str]:
        columns = {"table": TableOptions(columns=[column])} if column else {}

        def compare() -> str:
            try:
                with Loader(opened, augment=Augment.resize(8), **columns, **OPTIONS) as loader:
                    rows = [loader.sample(row) for row in range(min(len(loader.dataset), 100))]
            except WarpfeedError as e:
                raise refusal(e, opened.name) from None
            values = any(set(row) - {"id", "key", "label"} for row in rows)
            outcome = "read by warpfeed, but not by pyarrow" if values else "no column is read"
            raise Refused(f"{outcome} ({type(error).__name__})")

        return compare

    try:
        rows = oracle(path)
    except Exception as e:  # pyarrow raises errors of many types
        return outcomes.check(path, alone(e))
    checks: dict[str, Callable[[], str]] = {}
    for name, array in zip(rows.schema.names, rows.columns, strict=True):
        try:
            kind = array.type if not maps and need("pyarrow").types.is_map(array.type) else as_stored(array.type)
            columns = list(columns_of(name, kind, array.cast(kind).to_pylist()))
        except Exception as e:
            checks[name] = alone(e, name)
            continue
        for column, values in columns:
            checks[column] = lambda column=column, values=values: read(opened, column, values)
    outcomes.check_all(path, checks)


def parquet(path: Path) -> Any:
    return need("pyarrow.parquet").ParquetFile(path).read()


def test_parquet_testing(tmp_path: Path) -> None:
    outcomes = Outcomes("parquet-testing")
    for path in sorted([*outcomes.root.rglob("*.parquet"), *outcomes.root.rglob("*.encrypted")]):
        opened = tmp_path / "file.parquet"
        shutil.copy(path, opened)
        table(outcomes, path, opened, parquet, maps=False)
    outcomes.finish()


def test_arrow_testing(tmp_path: Path) -> None:
    outcomes, ipc = Outcomes("arrow-testing"), need("pyarrow.ipc")

    def oracle(path: Path) -> Any:
        with path.open("rb") as file:
            magic = file.read(6) == b"ARROW1"
            file.seek(0)
            return (ipc.open_file if magic else ipc.open_stream)(file).read_all()

    for folder in ["arrow-ipc-file", "arrow-ipc-stream", "forward-compatibility", "parquet"]:
        kind = "parquet" if folder == "parquet" else "arrow"
        for path in sorted(path for path in (outcomes.root / "data" / folder).rglob("*") if path.is_file()):
            if path.suffix not in (".gz", ".md"):
                opened = tmp_path / f"file.{kind}"
                shutil.copy(path, opened)
                table(outcomes, path, opened, parquet if kind == "parquet" else oracle, maps=kind == "arrow")
    outcomes.finish()
