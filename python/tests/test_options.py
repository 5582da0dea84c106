"""Tests that the error for an invalid option contains the option's name, and its value or what to
use instead, and that programs can catch the error by its class."""

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
    Augment, Boxes, Concat, ConfigError, Decoder, Loader, Mix, MultiHot, NdArray, Ragged, TableOptions, WarpfeedError, _options, _other_names,
)  # fmt: skip


#: Maps the types in `src/loader/option_table.rs` to Python types.
TYPES = {"u64": "int", "usize": "int", "bool": "bool", "f64": "float"}


def test_signature_and_documentation_match_the_crate() -> None:
    source, documented = inspect.getsource(Loader.__init__), Loader.__doc__ or ""
    missing = []
    rows = warpfeed._warpfeed.options()
    assert len(rows) > 25 and ["workers", "num_workers", "usize", "0"] in rows
    for setter, keyword, type_, default in rows:
        if setter == "local_world_size":
            continue  # Python reads this option from the launcher
        name, of = keyword or setter, TYPES.get(type_.removeprefix("Option<").removesuffix(">"))
        lines = [f"{name}: {of} | None = None"]
        if not type_.startswith("Option<"):
            lines.append(f"{name}: {of} = {default.capitalize()}")
        is_listed = any(f"        {w},\n" in source for w in lines)
        if not (re.search(rf"^        {name}: ", source, re.M) if of is None else is_listed):
            missing.append(f"in Loader.__init__:\n        {lines[-1]},")
        if not re.search(rf"^        {name}: ", documented, re.M):
            missing.append(f"in the documentation of Loader:\n        {name}: DESCRIPTION; DEFAULT.")
    advice = "add the missing options of src/loader/option_table.rs to python/warpfeed/_loader.py:\n"
    assert not missing, advice + "\n".join(missing)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"batch_size": -1}, ValueError, r"^batch_size=-1: expected at least 1"),
        ({"batch_size": 0}, ValueError, r"^batch_size=0: expected at least 1"),
        ({"global_batch_size": -3}, ValueError, r"^global_batch_size=-3: expected at least 1"),
        ({"batch_size": 8.0}, TypeError, r"^batch_size=8\.0: expected a whole number"),
        ({"batch_size": True}, TypeError, r"^batch_size=True: expected a whole number"),
        ({"batch_size": 1 << 64}, ValueError, r"^batch_size=18446744073709551616: expected"),
        ({"num_workers": "4"}, TypeError, r"^num_workers='4': expected a whole number"),
        (
            {"num_workers": 0},
            ValueError,
            r"^num_workers=0: expected at least 1.* one thread per core, or pass 1 for the fewest",
        ),
        ({"num_workers": -1}, ValueError, r"^num_workers=-1: expected at least 1"),
        ({"prefetch": 0}, ValueError, r"^prefetch=0: expected at least 1.*Leave prefetch out"),
        ({"prefetch": "2"}, TypeError, r"^prefetch='2': expected a whole number"),
        ({"seed": -3}, ValueError, r"^seed=-3: expected"),
        ({"shuffle": "yes"}, TypeError, r"^shuffle='yes': expected True or False$"),
        ({"shuffle": 42}, TypeError, r"^shuffle=42: expected True or False; pass shuffle=True, seed=42 for this seed$"),
        ({"shuffle": np.int64(7), "seed": 1}, TypeError, r"^shuffle=.*7.*: expected True or False; pass shuffle=True, seed="),
        ({"shuffle": 0}, TypeError, r"^shuffle=0: expected True or False"),
        ({"drop_last": "no"}, TypeError, r"^drop_last='no': expected True or False"),
        ({"copy": 1}, TypeError, r"^copy=1: expected True or False"),
        ({"held_batches_timeout": "1s"}, TypeError, r"^held_batches_timeout='1s': expected a number"),
        ({"held_batches_timeout": -1}, ValueError, r"^held_batches_timeout=-1: expected 0 or more"),
        ({"held_batches_timeout": float("inf")}, ValueError, r"^held_batches_timeout=inf: "),
        ({"classes": "cat"}, TypeError, r"^classes='cat': expected a list of names"),
        ({"classes": [1]}, TypeError, r"^classes=\[1\]: "),
        ({"weights": 3}, TypeError, r"^weights=3: expected a list of numbers"),
        ({"sampler": [1]}, TypeError, r"^sampler=\[1\]: expected a function f\(epoch\) .* instead of a torch sampler, use shuffle, weights"),
        ({"output": 3}, TypeError, r"^output=3: expected a str"),
        ({"device": -1}, ValueError, r"^device=-1: expected"),
        ({"drop_field": [3]}, TypeError, r"^drop_field=\[3\]: "),
        ({"resume": "x"}, TypeError, r"^resume='x': expected a result of state_dict\(\)"),
        ({"trace": ("a", 3)}, TypeError, r"^trace=\('a', 3\): expected a path, or"),
        ({"fields": [NdArray("f32")]}, TypeError, r"^fields=.*: expected a dict of field types by name"),
        ({"fields": {"x": NdArray("f32", [-1])}}, ValueError, r"^fields=NdArray\(.*: shape: .*`-1`"),
        ({"fields": {"x": Boxes("many")}}, TypeError, r"^fields=Boxes\(max_boxes='many', .*: max_boxes: .*\"many\""),
        ({"fields": {"x": Ragged("u8", [], 3, padding=300)}}, ValueError, r"^fields=Ragged\(.*padding=300"),
        ({"augment": Augment.train("x")}, TypeError, r"^Augment\.train\('x'\): "),
        ({"augment": Augment.resize((-1, 8))}, ValueError, r"^Augment\.resize\(\(-1, 8\)\): "),
        ({"soft_labels": "0.1"}, TypeError, r"^soft_labels='0\.1': expected \(classes, smoothing\), such as \(1000, 0\.1\)"),
        ({"soft_labels": True}, TypeError, r"^soft_labels=True: expected \(classes, smoothing\)"),
        ({"soft_labels": 1000}, ValueError, r"soft_labels: smoothing=1000: expected 0 to 1"),
        ({"shuffle": True, "balanced": True}, ValueError, r"^shuffle=True and balanced: "),
        ({"shuffle": True, "seed": 3, "weights": [1.0] * 64}, ValueError, r"^shuffle=True and weights: .* leave shuffle out, and keep seed"),
        ({"soft_labels": (-4, 0.1)}, ValueError, r"^soft_labels=\(-4, 0\.1\): .*expected \(classes, smoothing\)"),
        ({"normalize": 3}, TypeError, r"^normalize=3: expected 'imagenet' or \(mean, std\)"),
        ({"normalize": ((0.5,), (0.5,))}, ValueError, r"expected .* each of three numbers.*; found 1 and 1 numbers"),
        ({"batchsize": 3}, TypeError, r"no argument 'batchsize'; did you mean 'batch_size'\?"),
        ({"augmentation": 3}, TypeError, r"no argument 'augmentation'; did you mean 'augment'\?"),
        ({"xyzzy": 3}, TypeError, r"no argument 'xyzzy'$"),
        ({"table": "train.csv"}, TypeError, r"^table='train\.csv': expected warpfeed\.TableOptions"),
        ({"classes_file": 3}, TypeError, r"^classes_file=3: expected a str, or a path"),
    ],
)  # fmt: skip
def test_a_bad_option_fails_with_its_name(mini: str, options: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text) as raised:
        Loader(mini, **{"output": "numpy", **options})
    assert isinstance(raised.value, TypeError) or isinstance(raised.value, ConfigError), "a bad value must raise ConfigError"


def test_a_cache_needs_a_folder_of_its_own(mini: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cache_dir needs cache_bytes"):
        next(iter(Loader(mini, output="numpy", cache_dir=tmp_path / "cache")))
    # A local table may refer to files in an object store.
    original = sorted(Path(mini).rglob("*.jpg"))[0]
    (tmp_path / "t.csv").write_text(f"path,label\n{original},0\n")
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
    with pytest.raises(TypeError, match="^cache_refresh='yes': expected True or False"):
        Loader(cache_refresh="yes", **cache)


def test_bad_options_of_decoder_and_pack_are_named(mini: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^max_batch=-1: expected a whole number"):
        Decoder(max_batch=-1, output="numpy")
    with pytest.raises(ConfigError, match="^max_batch=0: expected at least one image"):
        Decoder(max_batch=0, output="numpy")
    with pytest.raises(TypeError, match="^TableOptions has no argument 'lable'; did you mean 'label'[?]"):
        TableOptions(lable="x")  # type: ignore[call-arg]
    for sizes in ({"shard_size": 10**6}, {"shard_samples": 5}):
        with pytest.raises(ConfigError, match=f"{next(iter(sizes))}: an LMDB has no shards"):
            warpfeed.pack(mini, tmp_path / "x.lmdb", **sizes)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^num_workers='2': expected a whole number"):
        warpfeed.pack(mini, tmp_path / "x.lmdb", num_workers="2")  # type: ignore[arg-type]


def test_a_mixture_is_not_packed(mini: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="^a Mixture cannot be packed, .*; pack each of its datasets"):
        warpfeed.pack(warpfeed.Mixture([(mini, 1.0), (mini, 2.0)]), tmp_path / "x.tar")


def test_numpy_numbers_are_accepted(mini: str) -> None:
    options = {"batch_size": np.int64(8), "drop_last": np.True_, "shuffle": np.False_, "seed": np.uint8(3)}
    loader = Loader(mini, output="numpy", augment=Augment.train(32), held_batches_timeout=np.float32(2), **options)
    assert len(loader) == 8 and next(iter(loader)).ids == list(range(8))


def test_shuffle_is_a_bool_and_seed_is_a_number(mini: str) -> None:
    def ids(**options: Any) -> list[int]:
        return next(iter(Loader(mini, batch_size=64, output="numpy", augment=Augment.train(32), **options))).ids

    assert ids(shuffle=True, seed=7) == ids(shuffle=np.True_, seed=np.int64(7)) != ids(shuffle=True)
    assert ids(shuffle=True, seed=0) == ids(shuffle=True) != ids(shuffle=False) == list(range(64))
    assert ids(seed=7) == ids(shuffle=np.False_, seed=7) == list(range(64))


def test_none_selects_automatic_workers_and_prefetch(mini: str, tmp_path: Path) -> None:
    with Loader(mini, output="numpy", num_workers=None, prefetch=None) as automatic, Loader(mini, output="numpy") as left_out:
        assert automatic.num_workers == left_out.num_workers >= 1 and automatic.prefetch == left_out.prefetch >= 1
    for call in (lambda: Decoder(num_workers=0, output="numpy"), lambda: warpfeed.pack(mini, tmp_path / "x.tar", num_workers=0)):
        with pytest.raises(ConfigError, match="^num_workers=0: expected at least 1. Workers are threads"):
            call()
    with pytest.raises(ConfigError, match="image_transform_processes=3 has no effect without image_transform=f; .* worker threads, use num_workers"):
        Loader(mini, output="numpy", image_transform_processes=3)


#: Argument names from earlier versions and other libraries, with the advice in the error.
OTHER_ARGUMENTS = {
    "transform": "use image_transform=f for .* each image.* or batch_transform=",
    "transforms": "use batch_transform",
    "transform_moves_pixels": "use image_transform_moves_pixels$",
    "order": "use sampler=f",
    "without": "use drop_field$",
    "to_8_bits": "use convert_to_u8$",
    "by_class_name": "use match_labels_by_name$",
    "unlabelled": "use unlabeled$",
    "workers": "use num_workers$",
    "pinned": "use pin_memory$",
    "on_error": "set max_skipped",
    "prefetch_factor": "set prefetch,",
    "worker_init_fn": "set seed$",
    "generator": "set seed$",
    "persistent_workers": "the workers live as long as the loader$",
    "multiprocessing_context": "the workers are threads of this process$",
    "collate_fn": "use collate=f",
    "batch_sampler": "set batch_size",
    "timeout": "held_batches_timeout limits",
    "dataset": "pass the dataset as the first argument$",
}


@pytest.mark.parametrize("name", OTHER_ARGUMENTS)
def test_other_option_names_suggest_the_right_one(mini: str, name: str) -> None:
    with pytest.raises(TypeError, match=f"^Loader has no argument '{name}': .*{OTHER_ARGUMENTS[name]}"):
        Loader(mini, output="numpy", **{name: 1})


def test_earlier_attribute_names_suggest_the_new_one(mini: str) -> None:
    for old, new in [
        ("Numbers", "NdArray"), ("Rows", "Ragged"), ("Map", "DenseMap"), ("Points", "Keypoints"), ("Joined", "DynamicBatcher"),
        ("MissingError", "NotFoundError"), ("TimedOutError", "LoaderTimeoutError"),
    ]:  # fmt: skip
        assert hasattr(warpfeed, new)
        with pytest.raises(ImportError, match=f"^warpfeed has no attribute '{old}': use {new}$"):
            exec(f"from warpfeed import {old}")
        with pytest.raises(ImportError, match=f"use {new}$"):
            getattr(warpfeed, old)
    with pytest.raises(AttributeError, match="^module 'warpfeed' has no attribute 'transform'$"):
        getattr(warpfeed, "transform")
    with Loader(mini, output="numpy") as loader, Decoder(output="numpy") as decoder:
        for object, old, new in [
            (loader, "faults", r"sample_errors\(\)"), (loader, "transform_cost", "image_transform_cost"),
            (decoder, "joined", "dynamic_batcher"), (next(iter(loader)), "pictures", "batch.unpadded_images"),
            (warpfeed.RandomErasing(0.5), "random_colour", "random_color"),
        ]:  # fmt: skip
            with pytest.raises(AttributeError, match=f"^{type(object).__name__} has no attribute '{old}': use .*{new}"):
                getattr(object, old)
            with pytest.raises(AttributeError, match="has no attribute 'nothing'$"):
                object.nothing  # type: ignore[attr-defined]
    for make, text in [
        (lambda: TableOptions(picture="x"), "TableOptions has no argument 'picture': use image$"),  # type: ignore[call-arg]
        (lambda: warpfeed.Coco("x.json", pictures="y"), "Coco has no argument 'pictures': use images"),  # type: ignore[call-arg]
        (lambda: warpfeed.DenseMap(1, picture=True), "DenseMap has no argument 'picture': use image$"),  # type: ignore[call-arg]
        (lambda: Concat([mini], by_class_name=True), "Concat has no argument 'by_class_name': use match_labels_by_name$"),  # type: ignore[call-arg]
        (lambda: warpfeed.pack(mini, "x.tar", to_8_bits=True), "pack has no argument 'to_8_bits': use convert_to_u8$"),  # type: ignore[arg-type]
        (lambda: warpfeed.pack(mini, "x.tar", shard_sise=1), "pack has no argument 'shard_sise'; did you mean 'shard_size'"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(TypeError, match=f"^{text}"):
            make()


#: Names in `_other_names` that are neither options of a loader nor exported.
ATTRIBUTES = {
    "batch_index", "field_types", "image_sizes", "sample_keys", "skip_checksums", "stratify", "unpadded_images",
}  # fmt: skip


def test_the_table_of_other_names_has_only_other_names() -> None:
    options = {name for f in (Loader.__init__, Decoder.__init__, warpfeed.pack) for name in _options.option_types(f)}
    # `output` is also an earlier method of Augment, `prefetch` an earlier option of Decoder, and `format` an option only
    # of `pack`.
    assert options & set(_other_names.INSTEAD) == {"output", "prefetch", "format"} and not set(warpfeed.__all__) & set(_other_names.INSTEAD)
    for old, text in _other_names.INSTEAD.items():
        new = re.match(r"use (\w+)$", text)
        if new is not None:
            classes = (
                TableOptions, warpfeed.Coco, warpfeed.DenseMap, warpfeed.Mixture, warpfeed.MixtureChange, warpfeed.TokenIds,
                warpfeed.Boxes, warpfeed.Clips, warpfeed.Voc, warpfeed.Ragged, warpfeed.PackedTokens, warpfeed.Zip,
            )  # fmt: skip
            fields = {name for c in classes for name in inspect.signature(c).parameters}
            known = options | set(warpfeed.__all__) | fields | set(dir(warpfeed.RandomErasing)) | set(dir(Augment)) | ATTRIBUTES
            assert new[1] in known, f"{old}: {text}"


def test_normalize_on_a_255_scale_is_refused_with_advice(mini: str) -> None:
    invalid = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
    with pytest.raises(ConfigError, match=r"0 to 255.*divide both by 255.*\[0\.485, 0\.456, 0\.406\].*\[0\.229"):
        Loader(mini, normalize=invalid, output="numpy")
    Loader(mini, normalize=((0, 0, 0), (1, 1, 1)), output="numpy").close()


def test_mixing_without_soft_labels_names_the_alternatives(mini: str) -> None:
    mixed = {"augment": Augment.train(32).mix(Mix.mixup(0.2)), "output": "numpy", "batch_size": 8}
    with pytest.raises(ConfigError, match=r'soft_labels=\(classes, smoothing\).*drop_field=\["label"\]') as e:
        Loader(mini, **mixed)
    assert "::" not in str(e.value)
    assert set(next(iter(Loader(mini, soft_labels=(4, 0), **mixed)))) == {"image", "label", "soft_label"}
    unlabeled = next(iter(Loader(mini, drop_field=["label"], **mixed)))
    assert list(unlabeled) == ["image"] and unlabeled.mixing is not None


def test_soft_labels_default_to_the_datasets_classes(mini: str) -> None:
    options: dict[str, Any] = {"batch_size": 8, "augment": Augment.resize(8), "output": "numpy", "shuffle": True, "seed": 2}
    alone = next(iter(Loader(mini, soft_labels=0.1, **options)))
    values = next(iter(Loader(mini, soft_labels=(4, 0.1), **options)))
    assert alone["soft_label"].shape == (8, 4) and (alone["soft_label"] == values["soft_label"]).all()
    assert next(iter(Loader(mini, soft_labels=0, **options)))["soft_label"].max() == 1
    with pytest.raises(ConfigError, match=r"no class names.*soft_labels=\(classes, smoothing\)"):
        Loader(Unnamed(), soft_labels=0.1, **options)


class Unnamed:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return np.full((8, 8, 3), index, np.uint8), index


def test_an_unsupported_dataset_fails_with_advice(tmp_path: Path, mini: str) -> None:
    original = np.zeros((8, 8, 3), np.uint8)
    for values, message in [
        ({"image": [original], "label": [0]}, "^a dict is accessed by name, .* __getitem__"),
        ([("a.jpg", 0), ("b.PNG", 1)], r"^a list must describe a mixture .*proportion\), \.\.\.\], but 'a.jpg' is a single image.* CSV"),
        ([(original, 0)], r"but an image \(ndarray\) is a single image.* __getitem__"),
        ([(b"\xff\xd8", 3)], r"but an image \(bytes\)"),
        (["a.tar", "b.tar"], r"^a list must describe a mixture of datasets, as \[\(data, proportion\), ...\]. To join datasets, use"),
        ([], "^a list must describe a mixture"),
    ]:
        with pytest.raises(TypeError, match=message):
            Loader(values, output="numpy")
    unlabeled = Loader(np.zeros((4, 8, 8, 3), np.uint8), output="numpy", augment=Augment.resize(8))
    with pytest.raises(WarpfeedError, match=r'remove labels with drop_field=\["label"\], read -1 with unlabeled=True, or'):
        next(iter(unlabeled))
    with pytest.raises(TypeError, match="^a dict is accessed by name"):
        warpfeed.pack({"image": [original]}, tmp_path / "x.tar")
    loader = Loader(mini, output="numpy")
    for call in (lambda: Loader(loader.dataset), lambda: warpfeed.pack(loader.dataset, tmp_path / "x.tar")):
        with pytest.raises(TypeError, match="^loader.dataset contains decoded samples.*subset=loader.dataset.indices"):
            call()

    class Frame(list):  # type: ignore[type-arg]
        iloc = None

    with pytest.raises(TypeError, match="^a Frame has columns, .*to_csv"):
        warpfeed.pack(Frame(), tmp_path / "x.tar")


def test_errors_derive_from_built_in_exceptions(tmp_path: Path, mini: str) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        Loader(tmp_path / "nothing", output="numpy")
    e = missing.value
    assert type(e) is warpfeed.NotFoundError and isinstance(e, (WarpfeedError, warpfeed.StorageError))
    assert (e.errno, e.filename, e.kind) == (2, str(tmp_path / "nothing"), "io") and str(e).startswith(e.filename)
    again = pickle.loads(pickle.dumps(e))
    assert type(again) is type(e) and str(again) == str(e) and again.errno == 2
    loader = Loader(mini, batch_size=4, copy=False, held_batches_timeout=0.2, prefetch=1, output="numpy", augment=Augment.train(32))
    with pytest.raises(TimeoutError) as stalled:
        retained = list(loader)
        del retained
    assert type(stalled.value) is warpfeed.LoaderTimeoutError and stalled.value.kind == "timeout"
    with pytest.raises(ConfigError):
        warpfeed.split(3, [0.5, 0.5], 1, labels=[1])
    with pytest.raises(ConfigError):
        loader.load_state_dict({"epoch": "x"})


def test_star_import_does_not_shadow_pil_image() -> None:
    assert "Image" not in warpfeed.__all__ and warpfeed.Image().source_field is None and "Pending" in warpfeed.__all__


def test_importing_the_package_imports_no_asyncio() -> None:
    out = ran("import sys, numpy; before = set(sys.modules); import warpfeed; print('asyncio' in sys.modules)")
    assert out == "False\n"


def test_a_misspelled_option_gets_a_suggestion(mini: str) -> None:
    code = f"import warpfeed; warpfeed.Loader({mini!r}, drop_lats=True)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert process.returncode == 1 and process.stderr.endswith("did you mean 'drop_last'?\n"), process.stderr


#: The groups of options, in the order in which the signature and the documentation list them.
GROUPS = [
    "Data", "Batches", "Order", "Images", "Fields", "Device", "Several GPUs", "Storage", "Errors and limits",
]  # fmt: skip


def test_signature_and_documentation_list_options_alike() -> None:
    source = inspect.getsource(Loader.__init__)
    signature = re.findall(r"^        (?:# (.*)|(\w+): .*,)$", source[: source.index("**unknown")], re.M)
    documented = re.findall(r"^(?:Args: (.*)| {4}(\w+): .*)$", (inspect.getdoc(Loader) or "").split("Raises:")[0], re.M)
    assert documented[1] == ("", "data") and signature[0] == ("", "data")
    # `data` comes before the keyword-only options.
    assert signature[1:] == [documented[0], *documented[2:]]
    assert [group for group, _ in documented if group] == GROUPS
    options = [name for _, name in documented[2:] if name]
    assert options == list(_options.option_types(Loader.__init__)) and len(options) > 60
    parameters = list(inspect.signature(Loader).parameters.values())
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters[1:-1])
    # The options of a decoder must be in the same order.
    shared = [name for name in _options.option_types(Decoder.__init__) if name in options]
    assert shared == [name for name in options if name in shared]


def test_signature_help_and_checks_name_the_same_options() -> None:
    for function, of in [(Loader.__init__, Loader), (Decoder.__init__, Decoder), (warpfeed.pack, warpfeed.pack)]:
        text = inspect.getdoc(of) or ""
        named = re.findall(r"^ {4}((?:[a-z_0-9]+, )*[a-z_0-9]+): ", text[text.index("Args:") :].split("Raises:")[0].split("Returns:")[0], re.MULTILINE)
        documented = {name for names in named for name in names.split(", ")}
        options = _options.option_types(function)
        assert set(options) <= documented, "every option must be documented"
        assert documented <= {"data", "target", *options}, "every documented option must exist"
        parameters = inspect.signature(function).parameters
        assert all(parameters[name].default is not inspect.Parameter.empty for name in options)
    shown = pydoc.render_doc(Loader, renderer=pydoc.plaintext)
    assert "batch_size: 'int | None' = None" in shown and "number of samples in a batch of this rank" in shown


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TableOptions(columns="12"), "columns='12': expected a list of names, such as"),
        (lambda: TableOptions(columns=b"12"), "columns=b'12': expected a list of names"),
        (lambda: TableOptions(columns=["a", 3]), "3 is not a str"),
        (lambda: TableOptions(files="mask"), "files='mask': expected a list of names"),
        (lambda: TableOptions(gather={"a": "xy"}), "gather: a='xy': expected a list of names"),
        (lambda: TableOptions(gather=["ab"]), "gather: a='b': expected a list of names"),
        (lambda: TableOptions(gather="ab"), "gather='ab': expected a dict"),
        (lambda: MultiHot("cats"), "classes='cats': expected a list of names"),
        (lambda: Boxes(3, columns=["ab"]), "columns="),
        (lambda: Boxes(3, columns="ab"), "columns='ab': expected a dict"),
        (lambda: Concat("set"), "parts='set': expected a list of datasets"),
        (lambda: warpfeed.split(4, [0.5, 0.5], 1, labels="0101"), "labels='0101': expected a list of numbers"),
        (lambda: Loader("set", classes="cats"), "classes='cats': expected a list of names"),
        (lambda: Loader("set", subset="12"), "subset='12': expected a list of indices"),
        (lambda: Loader("set", weights="12"), "weights='12': expected a list of numbers"),
        (lambda: warpfeed.pack("set", "x.tar", keys="ab"), "keys='ab': expected a list of names"),
        (lambda: warpfeed.pack("set", "x.tar", samples="12"), "samples='12': expected a list of indices"),
    ],
)
def test_a_string_is_not_a_list_of_characters(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Loader(b"set"), "data=b'set': expected a path as a str or an os.PathLike, not bytes"),
        (lambda: warpfeed.pack(bytearray(b"set"), "x.tar"), "data=bytearray(b'set'): expected a path as a str"),
        (lambda: warpfeed.split(b"set", [0.5, 0.5], 1), "samples=b'set': expected a path as a str"),
        (lambda: Concat([b"set"]), "parts=b'set': expected a path as a str"),
        (lambda: warpfeed.Zip([b"set"]), "parts=b'set': expected a path as a str"),
        (lambda: TableOptions(label=["a", "b"]), "label=['a', 'b']: expected the name of one column as a str; to read"),
        (lambda: TableOptions(image=3), "image=3: expected the name of one column as a str"),
        (lambda: Augment.letterbox(64).fill(0.5, 0.5, 0.5), "fill=(0.5, 0.5, 0.5): expected three whole numbers from 0"),
        (lambda: Augment.train(64).affine(fill=0), "affine: fill=0: expected three whole numbers from 0 to 255"),
        (lambda: Augment.train(64).timm("3a", fill=(1, 2)), "timm: fill=(1, 2): expected three whole numbers"),
        (lambda: Augment.train(64).aug_mix(fill=(1, 2, "3")), "aug_mix: fill=(1, 2, '3'): expected three whole numbers"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        make()


def test_a_loader_prints_arrays_as_type_and_shape() -> None:
    loader = Loader(
        np.zeros((4, 8, 8, 3), np.uint8), subset=np.array([0, 2]), unlabeled=True, output="numpy", batch_size=np.int64(2)
    )
    expected = "Loader(<ndarray of shape (4, 8, 8, 3)>, batch_size="
    assert repr(loader).startswith(expected) and str(loader.stats()["options"]).startswith(expected)
    assert "subset=<ndarray of shape (2,)>" in repr(loader)


def test_loaders_and_decoders_share_their_options() -> None:
    loader, decoder = _options.option_types(Loader.__init__), _options.option_types(Decoder.__init__)
    assert {name for name in decoder if name not in loader} == {"max_batch", "max_queued", "max_in_flight", "geometry"}
    assert {name: loader[name] for name in decoder if name in loader} == {
        name: types for name, types in decoder.items() if name in loader
    }


def test_statistics_contain_options_and_augmentation(mini: str, tmp_path: Path) -> None:
    augment = Augment.resize((8, 8)).flip(0.5)
    with Loader(mini, augment=augment, batch_size=16, subset=list(range(0, 64, 4)), output="numpy", prefetch=None) as loader:
        stats = loader.stats()
    assert stats["options"] == (
        f"Loader({mini!r}, batch_size=16, subset=[0, 4, 8, 12, 16, 20, ...], "
        "augment=Augment.resize((8, 8)).flip(0.5), output='numpy')"
    )
    assert stats.since(stats)["options"] == stats["options"] and "options" not in stats.flat()
    stats.report(tmp_path / "report.html", title="x")
    assert "batch_size=16, subset=[0, 4, 8, 12, 16, 20, ...], augment=Augment.resize((8, 8)).flip(0.5)" in (tmp_path / "report.html").read_text()
    with Decoder(augment=augment, max_batch=2, output="numpy") as decoder:
        assert decoder.stats()["options"] == f"Decoder(max_batch=2, augment={augment!r}, output='numpy')"
