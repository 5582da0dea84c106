"""Promise: every option that cannot work is an error that names the option, its value and the
alternative, of a class that programs catch."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warpfeed
from conftest import ran
from warpfeed import (
    Augment, Boxes, Concat, ConfigError, Decoder, Loader, Mix, MultiHot, Numbers, Rows, TableOptions, WarpfeedError, _options,
)  # fmt: skip


#: Types of the rows of `src/loader/rows.rs` in Python.
TYPES = {"u64": "int", "usize": "int", "bool": "bool", "f64": "float"}


def test_the_signature_and_the_documentation_have_the_rows_of_the_crate() -> None:
    source, documented = inspect.getsource(Loader.__init__), Loader.__doc__ or ""
    missing = []
    rows = warpfeed._warpfeed.options()
    assert len(rows) > 25 and ["workers", "num_workers", "usize", "0"] in rows
    for setter, keyword, type_, default in rows:
        if setter == "local_world_size":
            continue  # Python takes it from the launcher.
        name, of = keyword or setter, TYPES.get(type_.removeprefix("Option<").removesuffix(">"))
        wanted = [f"{name}: {of} | None = None"]
        if not type_.startswith("Option<"):
            wanted.append(f"{name}: {of} = {default.capitalize()}")
        if not re.search(rf"^        {name}: ", source, re.M) if of is None else not any(f"        {w},\n" in source for w in wanted):
            missing.append(f"in Loader.__init__:\n        {wanted[-1]},")
        if not re.search(rf"^        {name}: ", documented, re.M):
            missing.append(f"in the documentation of Loader:\n        {name}: what it is; the default.")
    assert not missing, "rows of src/loader/rows.rs; write in python/warpfeed/_loader.py\n" + "\n".join(missing)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"batch_size": -1}, ValueError, r"^batch_size=-1: want a whole number from 0"),
        ({"batch_size": 0}, ValueError, r"config: batch_size=0: a batch has at least one sample"),
        ({"batch_size": 8.0}, TypeError, r"^batch_size=8\.0: want a whole number"),
        ({"batch_size": True}, TypeError, r"^batch_size=True: want a whole number"),
        ({"batch_size": 1 << 64}, ValueError, r"^batch_size=18446744073709551616: want"),
        ({"num_workers": "4"}, TypeError, r"^num_workers='4': want a whole number"),
        ({"prefetch": None}, TypeError, r"^prefetch=None: want a whole number"),
        ({"seed": -3}, ValueError, r"^seed=-3: want"),
        ({"shuffle": "yes"}, TypeError, r"^shuffle='yes': want True or False, or a whole number"),
        ({"shuffle": -1}, ValueError, r"^shuffle=-1: want a whole number"),
        ({"shuffle": 0}, ValueError, r"^shuffle=0: pass shuffle=False .* or shuffle=True, seed=0 .*seed=s takes every"),
        ({"shuffle": 7, "seed": 1}, ValueError, r"both are the seed.* order=f"),
        ({"drop_last": "no"}, TypeError, r"^drop_last='no': want True or False"),
        ({"copy": 1}, TypeError, r"^copy=1: want True or False"),
        ({"timeout": "1s"}, TypeError, r"^timeout='1s': want a number"),
        ({"timeout": -1}, ValueError, r"^timeout=-1: want 0 or more"),
        ({"timeout": float("inf")}, ValueError, r"^timeout=inf: "),
        ({"classes": "cat"}, TypeError, r"^classes='cat': want a list of names"),
        ({"classes": [1]}, TypeError, r"^classes=\[1\]: "),
        ({"weights": 3}, TypeError, r"^weights=3: want a list of numbers"),
        ({"order": [1]}, TypeError, r"^order=\[1\]: want a function"),
        ({"output": 3}, TypeError, r"^output=3: want a str"),
        ({"device": -1}, ValueError, r"^device=-1: want"),
        ({"without": [3]}, TypeError, r"^without=\[3\]: "),
        ({"resume": "x"}, TypeError, r"^resume='x': want what state_dict\(\) returned"),
        ({"trace": ("a", 3)}, TypeError, r"^trace=\('a', 3\): want a path, or"),
        ({"fields": [Numbers("f32")]}, TypeError, r"^fields=.*: want a dict of kinds by name"),
        ({"fields": {"x": Numbers("f32", [-1])}}, ValueError, r"^fields=Numbers\(.*: shape: .*`-1`"),
        ({"fields": {"x": Boxes("many")}}, TypeError, r"^fields=Boxes\(most='many', .*: most: .*\"many\""),
        ({"fields": {"x": Rows("u8", [], 3, padding=300)}}, ValueError, r"^fields=Rows\(.*padding=300"),
        ({"augment": Augment.train("x")}, TypeError, r"^Augment\.train\('x'\): "),
        ({"augment": Augment.resize((-1, 8))}, ValueError, r"^Augment\.resize\(\(-1, 8\)\): "),
        ({"soft_labels": "0.1"}, TypeError, r"^soft_labels='0\.1': want \(classes, smoothing\), such as \(1000, 0\.1\)"),
        ({"soft_labels": True}, TypeError, r"^soft_labels=True: want \(classes, smoothing\)"),
        ({"soft_labels": 1000}, ValueError, r"soft_labels: a smoothing of 1000; needs 0 to 1"),
        ({"shuffle": True, "balanced": True}, ValueError, r"^shuffle=True and balanced: .* seed=s"),
        ({"shuffle": 3, "weights": [1.0] * 64}, ValueError, r"^shuffle=3 and weights: .* seed=s"),
        ({"soft_labels": (-4, 0.1)}, ValueError, r"^soft_labels=\(-4, 0\.1\): .*want \(classes, smoothing\)"),
        ({"normalize": 3}, TypeError, r"^normalize=3: want 'imagenet' or \(mean, std\)"),
        ({"normalize": ((0.5,), (0.5,))}, ValueError, r"want .* each of three numbers.*; these are of 1 and 1"),
        ({"batchsize": 3}, TypeError, r"no argument 'batchsize'; did you mean 'batch_size'\?"),
        ({"augmentation": 3}, TypeError, r"no argument 'augmentation'; did you mean 'augment'\?"),
        ({"xyzzy": 3}, TypeError, r"no argument 'xyzzy'$"),
        ({"workers": 3}, TypeError, r"no 'workers': the option is called num_workers"),
        ({"pinned": True}, TypeError, r"no 'pinned': the option is called pin_memory"),
        ({"on_error": "skip"}, TypeError, r"no 'on_error': set max_skipped"),
        ({"table": "train.csv"}, TypeError, r"^table='train\.csv': want warpfeed\.TableOptions"),
        ({"classes_file": 3}, TypeError, r"^classes_file=3: want a str, or a path"),
    ],
)  # fmt: skip
def test_a_bad_option_is_an_error_that_names_it(mini: str, options: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text) as raised:
        Loader(mini, **{"output": "numpy", **options})
    assert isinstance(raised.value, TypeError) or isinstance(raised.value, ConfigError), "configuration has one class"


def test_the_folder_of_a_cache_is_its_own(mini: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cache_dir needs cache_bytes"):
        next(iter(Loader(mini, output="numpy", cache_dir=tmp_path / "cache")))
    # A table of this machine may name files in a store.
    image = sorted(Path(mini).rglob("*.jpg"))[0]
    (tmp_path / "t.csv").write_text(f"path,label\n{image},0\n")
    table: dict[str, Any] = {"data": tmp_path / "t.csv", "table": TableOptions(image="path"), "output": "numpy"}
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "x.jpg").write_bytes(b"")
    with pytest.raises(ConfigError, match='this one contains "x.jpg": choose an empty folder'):
        next(iter(Loader(**table, cache_dir=tmp_path / "photos", cache_bytes=10**9)))
    cache = {**table, "augment": Augment.train(32), "cache_dir": tmp_path / "new", "cache_bytes": 10**9}
    next(iter(Loader(**cache)))
    assert (tmp_path / "new" / "warpfeed-cache").exists()
    listing = tmp_path / "new" / "files" / f"{0:032x}.listing"
    listing.write_bytes(b"")
    Loader(cache_refresh=False, **cache).close()
    assert listing.exists()
    Loader(cache_refresh=True, **cache).close()
    assert not listing.exists()
    with pytest.raises(TypeError, match="^cache_refresh='yes': want True or False"):
        Loader(cache_refresh="yes", **cache)


def test_bad_options_of_a_decoder_and_of_pack_are_named_too(mini: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^max_batch=-1: want a whole number"):
        Decoder(max_batch=-1, output="numpy")
    with pytest.raises(ConfigError, match="^max_batch=0: a request has at least one image"):
        Decoder(max_batch=0, output="numpy")
    with pytest.raises(TypeError, match="^TableOptions has no argument 'lable'; did you mean 'label'[?]"):
        TableOptions(lable="x")  # type: ignore[call-arg]
    for sizes in ({"shard_size": 10**6}, {"shard_samples": 5}):
        with pytest.raises(ConfigError, match=f"{next(iter(sizes))}: an LMDB is one file"):
            warpfeed.pack(mini, tmp_path / "x.lmdb", **sizes)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^num_workers='2': want a whole number"):
        warpfeed.pack(mini, tmp_path / "x.lmdb", num_workers="2")  # type: ignore[arg-type]


def test_numpy_numbers_are_accepted(mini: str) -> None:
    options = {"batch_size": np.int64(8), "drop_last": np.True_, "shuffle": np.False_, "seed": np.uint8(3)}
    loader = Loader(mini, output="numpy", augment=Augment.train(32), timeout=np.float32(2), **options)
    assert len(loader) == 8 and next(iter(loader)).ids == list(range(8))


def test_shuffle_true_is_the_seed_and_an_integer_is_one(mini: str) -> None:
    def ids(**options: Any) -> list[int]:
        return next(iter(Loader(mini, batch_size=64, output="numpy", augment=Augment.train(32), **options))).ids

    assert ids(shuffle=True, seed=7) == ids(shuffle=7) != ids(shuffle=True)
    assert ids(shuffle=True, seed=0) == ids(shuffle=True) != ids(shuffle=False) == list(range(64))


def test_normalize_on_a_scale_of_255_is_refused_with_the_right_numbers(mini: str) -> None:
    wrong = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
    with pytest.raises(ConfigError, match=r"0 to 255.*divide both by 255.*\[0\.485, 0\.456, 0\.406\].*\[0\.229"):
        Loader(mini, normalize=wrong, output="numpy")
    Loader(mini, normalize=((0, 0, 0), (1, 1, 1)), output="numpy").close()


def test_mixing_without_soft_labels_is_refused_with_the_alternatives(mini: str) -> None:
    mixed = {"augment": Augment.train(32).mix(Mix.mixup(0.2)), "output": "numpy", "batch_size": 8}
    with pytest.raises(ConfigError, match=r'soft_labels=\(classes, smoothing\).*without=\["label"\]') as e:
        Loader(mini, **mixed)
    assert "::" not in str(e.value)
    assert set(next(iter(Loader(mini, soft_labels=(4, 0), **mixed)))) == {"image", "label", "soft_label"}
    unlabeled = next(iter(Loader(mini, without=["label"], **mixed)))
    assert list(unlabeled) == ["image"] and unlabeled.mixing is not None


def test_smoothing_alone_takes_the_classes_of_the_dataset(mini: str) -> None:
    options: dict[str, Any] = {"batch_size": 8, "augment": Augment.resize(8), "output": "numpy", "shuffle": 2}
    alone = next(iter(Loader(mini, soft_labels=0.1, **options)))
    given = next(iter(Loader(mini, soft_labels=(4, 0.1), **options)))
    assert alone["soft_label"].shape == (8, 4) and (alone["soft_label"] == given["soft_label"]).all()
    assert next(iter(Loader(mini, soft_labels=0, **options)))["soft_label"].max() == 1
    with pytest.raises(ConfigError, match=r"no names of classes.*soft_labels=\(classes, smoothing\)"):
        Loader(Unnamed(), soft_labels=0.1, **options)


class Unnamed:
    """A dataset without names of classes."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return np.full((8, 8, 3), index, np.uint8), index


def test_what_is_no_dataset_says_what_is(tmp_path: Path, mini: str) -> None:
    image = np.zeros((8, 8, 3), np.uint8)
    for given, said in [
        ({"image": [image], "label": [0]}, "^a dict has its entries by name, .* __getitem__"),
        ([("a.jpg", 0), ("b.PNG", 1)], r"^a list is a mixture .*share\), \.\.\.\], and 'a.jpg' is one image.* CSV"),
        ([(image, 0)], r"and an image \(ndarray\) is one image.* __getitem__"),
        ([(b"\xff\xd8", 3)], r"and an image \(bytes\)"),
        (["a.tar", "b.tar"], r"^a list is a mixture of datasets: \[\(data, share\), ...\]. Concat"),
        ([], "^a list is a mixture"),
    ]:
        with pytest.raises(TypeError, match=said):
            Loader(given, output="numpy")
    unlabeled = Loader(np.zeros((4, 8, 8, 3), np.uint8), output="numpy", augment=Augment.resize(8))
    with pytest.raises(WarpfeedError, match=r'leave labels out with without=\["label"\], read -1 with unlabeled=True, or'):
        next(iter(unlabeled))
    with pytest.raises(TypeError, match="^a dict has its entries by name"):
        warpfeed.pack({"image": [image]}, tmp_path / "x.tar")
    loader = Loader(mini, output="numpy")
    for call in (lambda: Loader(loader.dataset), lambda: warpfeed.pack(loader.dataset, tmp_path / "x.tar")):
        with pytest.raises(TypeError, match="^loader.dataset has decoded samples.*subset=loader.dataset.indices"):
            call()

    class Frame(list):  # type: ignore[type-arg]
        iloc = None

    with pytest.raises(TypeError, match="^a Frame has columns, .*to_csv"):
        warpfeed.pack(Frame(), tmp_path / "x.tar")


def test_errors_are_of_the_classes_that_programs_catch(tmp_path: Path, mini: str) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        Loader(tmp_path / "nothing", output="numpy")
    e = missing.value
    assert isinstance(e, WarpfeedError) and isinstance(e, warpfeed.StorageError)
    assert (e.errno, e.filename, e.kind) == (2, str(tmp_path / "nothing"), "io") and str(e).startswith(e.filename)
    again = pickle.loads(pickle.dumps(e))
    assert type(again) is type(e) and str(again) == str(e) and again.errno == 2
    loader = Loader(mini, batch_size=4, copy=False, timeout=0.2, prefetch=1, output="numpy", augment=Augment.train(32))
    with pytest.raises(TimeoutError) as stalled:
        kept = list(loader)
        del kept
    assert isinstance(stalled.value, warpfeed.TimedOutError) and stalled.value.kind == "timeout"
    with pytest.raises(ConfigError):
        warpfeed.split(3, [0.5, 0.5], 1, labels=[1])
    with pytest.raises(ConfigError):
        loader.load_state_dict({"epoch": "x"})


def test_a_star_import_leaves_pillows_image_alone() -> None:
    assert "Image" not in warpfeed.__all__ and warpfeed.Image().of is None and "Pending" in warpfeed.__all__


def test_importing_the_package_imports_no_asyncio() -> None:
    out = ran("import sys, numpy; before = set(sys.modules); import warpfeed; print('asyncio' in sys.modules)")
    assert out == "False\n"


def test_a_misspelt_option_has_its_suggestion_in_a_script(mini: str) -> None:
    code = f"import warpfeed; warpfeed.Loader({mini!r}, drop_lats=True)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and done.stderr.endswith("did you mean 'drop_last'?\n"), done.stderr


def test_the_signature_the_help_and_the_checks_name_the_same_options() -> None:
    for function, text in [(Loader.__init__, Loader.__doc__), (Decoder.__init__, Decoder.__doc__), (warpfeed.pack,) * 2]:
        text = text if isinstance(text, str) else inspect.getdoc(warpfeed.pack)
        assert text is not None
        named = re.findall(r"^ *((?:[a-z_0-9]+, )*[a-z_0-9]+): ", text[text.index("Args:") :], re.MULTILINE)
        documented = {name for names in named for name in names.split(", ")}
        options = _options.table(function)
        assert set(options) <= documented, "every option has a text"
        assert documented <= {"data", "target", *options} | {"TypeError", "WarpfeedError"}, "every text has an option"
        parameters = inspect.signature(function).parameters
        assert all(parameters[name].default is not inspect.Parameter.empty for name in options)
    shown = pydoc.render_doc(Loader, renderer=pydoc.plaintext)
    assert "batch_size: 'int | None' = None" in shown and "number of samples in a batch of this rank" in shown


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TableOptions(columns="12"), "columns='12': want a list of names, such as"),
        (lambda: TableOptions(columns=b"12"), "columns=b'12': want a list of names"),
        (lambda: TableOptions(columns=["a", 3]), "3 is not a str"),
        (lambda: TableOptions(files="mask"), "files='mask': want a list of names"),
        (lambda: TableOptions(gather={"a": "xy"}), "gather: a='xy': want a list of names"),
        (lambda: TableOptions(gather=["ab"]), "gather: a='b': want a list of names"),
        (lambda: TableOptions(gather="ab"), "gather='ab': want a dict"),
        (lambda: MultiHot("cats"), "classes='cats': want a list of names"),
        (lambda: Boxes(3, columns=["ab"]), "columns="),
        (lambda: Boxes(3, columns="ab"), "columns='ab': want a dict"),
        (lambda: Concat("set"), "parts='set': want a list of datasets"),
        (lambda: warpfeed.split(4, [0.5, 0.5], 1, labels="0101"), "labels='0101': want a list of numbers"),
        (lambda: Loader("set", classes="cats"), "classes='cats': want a list of names"),
        (lambda: Loader("set", subset="12"), "subset='12': want a list of indices"),
        (lambda: Loader("set", weights="12"), "weights='12': want a list of numbers"),
        (lambda: warpfeed.pack("set", "x.tar", keys="ab"), "keys='ab': want a list of names"),
        (lambda: warpfeed.pack("set", "x.tar", samples="12"), "samples='12': want a list of indices"),
    ],
)
def test_a_text_is_not_split_into_its_letters(make: Any, said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        make()


def test_loaders_and_decoders_share_their_options() -> None:
    loader, decoder = _options.table(Loader.__init__), _options.table(Decoder.__init__)
    assert {name for name in decoder if name not in loader} == {"max_batch", "max_queued", "geometry"}
    assert {name: loader[name] for name in decoder if name in loader} == {
        name: types for name, types in decoder.items() if name in loader
    }


def test_statistics_tell_the_options_and_the_augmentation(mini: str, tmp_path: Path) -> None:
    augment = Augment.resize((8, 8)).flip(0.5)
    with Loader(mini, augment=augment, batch_size=16, subset=list(range(0, 64, 4)), output="numpy", prefetch=0) as loader:
        stats = loader.stats()
    assert stats["options"] == (
        f"Loader({mini!r}, batch_size=16, augment=Augment.resize((8, 8)).flip(0.5), output='numpy', "
        "subset=[0, 4, 8, 12, 16, 20, ...])"
    )
    assert stats.since(stats)["options"] == stats["options"] and "options" not in stats.flat()
    stats.report(tmp_path / "report.html", title="x")
    assert "batch_size=16, augment=Augment.resize((8, 8)).flip(0.5)" in (tmp_path / "report.html").read_text()
    with Decoder(augment=augment, max_batch=2, output="numpy") as decoder:
        assert decoder.stats()["options"] == f"Decoder(max_batch=2, augment={augment!r}, output='numpy')"
