"""Options of `Loader`, `Decoder` and `pack`.

The signature of each function is the table of its options: names, types and defaults. :func:`given`
checks values by these types, and :func:`native` converts them for the native part. Every error
names the option and its value.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import json
import operator
import os
import types
from typing import Any, Callable, Iterable, Literal, Mapping, Sequence, Union, get_args, get_origin, get_type_hints

from ._error import ConfigError
from ._numbers import Indices, Numbers, whole
from ._types import Dtype

#: A file or a folder.
Path = Union[str, os.PathLike[str]]

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

_DTYPES = {
    "u8": "u8", "uint8": "u8", "f32": "f32", "float32": "f32", "float": "f32", "f16": "f16", "float16": "f16",
    "half": "f16", "bf16": "bf16", "bfloat16": "bf16", "i64": "i64", "int64": "i64", "long": "i64",
    "i16": "i16", "int16": "i16", "i32": "i32", "int32": "i32", "u16": "u16", "uint16": "u16",
    "f64": "f64", "float64": "f64", "double": "f64",
}  # fmt: skip

PER_SAMPLE = (
    "for a Python function on each image pass transform=f to a Loader, which calls it in worker processes; functions on "
    "whole batches, such as torchvision.transforms.v2 on the device, are transforms=[f]"
)

# Arguments of torch.utils.data.DataLoader and names of the Rust crate, with the alternative.
_ELSEWHERE = {
    "sampler": "choose samples with shuffle, subset, weights or balanced, or order=f, and ranks with distributed=True",
    "batch_sampler": "set batch_size, and choose samples with shuffle, subset, weights or balanced",
    "collate_fn": "pass collate=f, which receives the finished batch as a dict of fields; add fields with "
    "fields={name: Numbers(...) or Rows(...)}",
    "worker_init_fn": "the random numbers of a sample depend only on (seed, epoch, sample); set seed",
    "generator": "the random numbers of a sample depend only on (seed, epoch, sample); set seed",
    "multiprocessing_context": "workers are threads of this process",
    "persistent_workers": "workers live as long as the loader",
    "prefetch_factor": "set prefetch, in batches; 0 chooses it while running",
    "transform": PER_SAMPLE,
    "target_transform": "map labels of a whole batch with transforms=[f]",
    "codec": "a Python decoder would run under the interpreter's lock; convert the files, or write the codec in Rust",
    "on_error": "set max_skipped, the number of bad samples that may be skipped; without it the first is an error",
    "pinned": "the option is called pin_memory",
    "workers": "the option is called num_workers",
}  # fmt: skip

#: A predicate for values of a type, and the text of the error for another value.
_Taken = tuple[Callable[[Any], bool], str]


@functools.lru_cache(maxsize=None)
def table(function: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """The types of each keyword-only parameter of `function`, by name."""
    hints = get_type_hints(function)
    named = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return {name: _alternatives(hints[name]) for name in named}


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def given(function: Callable[..., Any], values: Mapping[str, Any], unknown: Iterable[str] = ()) -> dict[str, Any]:
    """The options of `function` among its arguments `values`, checked by their types.

    Raises:
        TypeError: for a value of another type, and for the first of the `unknown` names.
        ConfigError: for a number that is out of range.
    """
    options = table(function)
    for name in unknown:
        owner = function.__qualname__.partition(".")[0]
        if name in _ELSEWHERE:
            raise TypeError(f"{owner} has no {name!r}: {_ELSEWHERE[name]}")
        raise misspelt(owner, name, options)
    for name, kinds in options.items():
        _check(name, values[name], kinds)
    return {name: values[name] for name in options}


def misspelt(owner: str, name: str, known: Iterable[str]) -> TypeError:
    """The error for an argument that `owner` does not have, with the most similar one."""
    import difflib  # slow to import, and only errors need it

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return TypeError(f"{owner} has no argument {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))


class Named:
    """Base of a dataclass whose misspelt arguments are errors with a suggestion."""

    def __new__(cls, *_: Any, **given: Any) -> Any:
        known = inspect.signature(cls.__init__).parameters
        for name in given:
            if name not in known:
                raise misspelt(cls.__name__, name, known)
        return super().__new__(cls)


def one_of(name: str, value: str, known: Sequence[str]) -> str:
    """Returns `value` if it is one of the `known` words.

    Raises:
        ConfigError: if it is not.
    """
    if value not in known:
        *others, last = map(repr, known)
        raise ConfigError(f"{name}={value!r}: known are {', '.join(others)} and {last}")
    return value


def data(value: Any) -> str:
    """Plain data as JSON, for the native part."""
    return json.dumps(value, default=_plain, allow_nan=False)


def _plain(value: Any) -> Any:
    """What JSON has in place of `value`."""
    if hasattr(value, "_data"):
        return value._data()
    if is_flag(value):
        return bool(value)
    return operator.index(value) if hasattr(value, "__index__") else float(value)


def _check(name: str, value: Any, kinds: tuple[Any, ...]) -> None:
    """Checks that `value` has one of the types `kinds`, and that a number is in range."""
    wanted = []
    for kind in kinds:
        takes, text = _taken(kind)
        if takes(value):
            if kind is int and not 0 <= operator.index(value) < 1 << 64:
                raise ConfigError(f"{name}={value!r}: want a whole number from 0 to 2**64 - 1")
            if kind is float and float(value) < 0:
                raise ConfigError(f"{name}={value!r}: want 0 or more")
            if get_origin(kind) is Literal:
                one_of(name, value, get_args(kind))
            return
        wanted.append(text)
    raise TypeError(f"{name}={value!r}: want {', or '.join(text for text in wanted if text)}")


def _taken(kind: Any) -> _Taken:
    """The check of the type `kind` of a signature."""
    origin = get_origin(kind) or kind
    if kind is Any or origin in (tuple, collections.abc.Mapping):
        # `native` checks the contents too.
        return lambda value: True, ""
    if kind is type(None):
        return lambda value: value is None, ""
    if kind is bool:
        return is_flag, "True or False"
    if kind is int:
        return lambda value: hasattr(type(value), "__index__") and not is_flag(value), "a whole number"
    if kind is float:
        return _is_number, "a number"
    if kind is str or origin is Literal:
        return lambda value: isinstance(value, str), "a str"
    if origin is collections.abc.Callable:
        return callable, "a function"
    if origin in (collections.abc.Sequence, collections.abc.Iterable):
        # A str is a sequence of letters, which no option takes.
        items = {int: "indices", float: "numbers", str: "names"}.get(get_args(kind)[0], "values")
        return lambda value: hasattr(value, "__iter__") and not isinstance(value, (str, bytes)), f"a list of {items}"
    if origin is os.PathLike:
        return lambda value: isinstance(value, os.PathLike), "a path"
    return lambda value: isinstance(value, kind), f"warpfeed.{kind.__name__}"


def texts(name: str, value: Any) -> tuple[str, ...]:
    """The names in `value`. A single text would be split into its letters.

    Raises:
        TypeError: if `value` is not a list of texts.
    """
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        hint = f", such as [{value!r}]" if isinstance(value, str) else ""
        raise TypeError(f"{name}={value!r}: want a list of names{hint}")
    names = tuple(value)
    for one in names:
        if not isinstance(one, str):
            raise TypeError(f"{name}={value!r}: want a list of names, and {one!r} is not a str")
    return names


def is_flag(value: Any) -> bool:
    """Whether this is a ``bool``, Python's or NumPy's."""
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy"


def number(name: str, value: Any) -> int:
    """The whole number from 0 that `value` is.

    Raises:
        TypeError: for anything else, such as a fraction or True.
        ConfigError: for a number that is out of range.
    """
    _check(name, value, (int,))
    return operator.index(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, (str, bytes)) or is_flag(value):
        return False
    try:
        return not float(value) != float(value)
    except (TypeError, ValueError):
        return False


def exclusive(values: Mapping[str, Any], *pairs: tuple[str, str]) -> None:
    """Refuses pairs of options that contradict each other."""
    for one, other in pairs:
        if values[one] is not None and values[other] is not None:
            raise ConfigError(f"{one}={values[one]!r} and {other}={values[other]!r}: set one of them")


def native(values: Mapping[str, Any], without: Iterable[str] = ()) -> dict[str, Any]:
    """The options that are set, as the native part takes them, except those in `without`."""
    left_out = set(without)
    return {
        name: _CONVERSIONS.get(name, _same)(value)
        for name, value in values.items()
        if value is not None and name not in left_out
    }


def _same(value: Any) -> Any:
    return bool(value) if is_flag(value) else value


def dtype_name(dtype: Dtype) -> str:
    """The crate's name of an element type, from that name, NumPy's or torch's."""
    name = (getattr(dtype, "__name__", None) or str(dtype)).removeprefix("torch.")
    if name not in _DTYPES:
        raise ConfigError(
            f"dtype={dtype!r}: known are u8, f32, f16, bf16, of fields f64, i16, i32, i64 and u16 too, and torch's and "
            "NumPy's names of these"
        )
    return _DTYPES[name]


def _ordered(order: Callable[[int], Any]) -> Callable[[int], list[int]]:
    """Makes an order return lists of integers in place of arrays or other sequences."""

    def indices(epoch: int) -> list[int]:
        return whole(f"order({epoch})", order(epoch))

    # Messages name the program's function.
    indices.func = order  # type: ignore[attr-defined]
    return indices


def _normalization(normalize: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel, on a scale of 0 to 1."""
    if isinstance(normalize, str):
        if normalize != "imagenet":
            raise ConfigError(
                f"normalize={normalize!r}: known are 'imagenet' and (mean, std); floats are pixel / 255 without it"
            )
        return IMAGENET
    wanted = "want 'imagenet' or (mean, std), each of three numbers on a scale of 0 to 1"
    try:
        mean, std = (tuple(float(x) for x in part) for part in normalize)
    except (TypeError, ValueError):
        raise TypeError(f"normalize={normalize!r}: {wanted}") from None
    if (len(mean), len(std)) != (3, 3):
        raise ConfigError(f"normalize={normalize!r}: {wanted}; these are of {len(mean)} and {len(std)}")
    return mean, std


def _soft_labels(value: Any) -> Any:
    wanted = (
        "want (classes, smoothing), such as (1000, 0.1), or for a dataset with names of classes the smoothing alone, "
        "such as 0.1"
    )
    if _is_number(value):
        # The dataset tells the number of its classes.
        value = (None, value)
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"soft_labels={value!r}: {wanted}")
    try:
        _check("classes", value[0], (int, type(None)))
        _check("smoothing", value[1], (float,))
    except (TypeError, ConfigError) as e:
        raise type(e)(f"soft_labels={value!r}: {e}; {wanted}") from None
    return tuple(value)


def _fields(fields: Any) -> dict[str, Any]:
    if not isinstance(fields, Mapping):
        raise TypeError(f"fields={fields!r}: want a dict of kinds by name, such as {{'boxes': Boxes(100)}}")
    for name, kind in fields.items():
        if not hasattr(kind, "_describe"):
            raise TypeError(f"fields: {name!r} is {kind!r}; want warpfeed.Numbers(...), Boxes(...) or another kind")
    return dict(fields)


def _traced(trace: Any) -> tuple[Any, tuple[int, ...]]:
    """The file of a trace, and its windows."""
    if isinstance(trace, (str, os.PathLike)):
        return trace, (1, 1, 3, 1)
    try:
        path, windows = trace
        return os.fspath(path), tuple(int(n) for n in windows)
    except (TypeError, ValueError):
        raise TypeError(f"trace={trace!r}: want a path, or (path, (wait, warmup, active, repeat))") from None


def state_text(state: Any, name: str = "resume") -> str:
    """Returns a state of ``state_dict`` as JSON."""
    if not isinstance(state, Mapping):
        raise TypeError(f"{name}={state!r}: want what state_dict() returned")
    return json.dumps(dict(state))


def shuffling(shuffle: Any, seed: int | None) -> tuple[bool, int]:
    """Whether the order is shuffled, and the seed of everything that is random."""
    if is_flag(shuffle):
        return bool(shuffle), seed or 0
    if shuffle == 0:
        # Ambiguous: it means False as a flag, and seed 0 as a seed.
        raise ConfigError(
            "shuffle=0: pass shuffle=False for the order of the dataset, or shuffle=True, seed=0 for the seed 0; "
            "shuffle=True, seed=s takes every seed"
        )
    if seed is not None and seed != shuffle:
        raise ConfigError(
            f"shuffle={shuffle} and seed={seed}: both are the seed, which the order and the augmentation share. For "
            f"one order with other augmentation pass seed={seed} and order=f, where f(epoch) returns the indices"
        )
    return True, int(shuffle)


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "buckets": lambda buckets: (buckets._lengths, buckets.bounds),
    "classes": list,
    "classes_file": os.fspath,
    "dtype": dtype_name,
    "fields": _fields,
    "normalize": _normalization,
    "order": _ordered,
    "resume": state_text,
    "soft_labels": _soft_labels,
    "subset": lambda indices: Indices("subset", indices),
    "trace": _traced,
    "views": list,
    "weights": lambda weights: Numbers("weights", weights),
    "without": lambda names: [names] if isinstance(names, str) else list(names),
}
