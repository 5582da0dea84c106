"""Options of `Loader`, `Decoder` and `pack`.

The signature of each function defines its options, with their names, types, defaults and groups.
:func:`given` checks values against these types, and :func:`native` converts them for the native
module. Every error states the option and its value.
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
from ._number_lists import Floats, Indices, whole
from ._other_names import missing
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

#: Options that the loader chooses if they are None, with the reason why 0 is an error.
_AUTOMATIC = {
    "num_workers": "there are no worker processes, and the main thread does not load. Threads decode without the "
    "interpreter's lock. Leave num_workers out for one thread per core, or pass 1 for the fewest",
    "prefetch": "at least one batch is prepared ahead. Leave prefetch out to let the loader choose, or pass 1 for the "
    "fewest",
}

#: A predicate for values of a type, and the type as errors name it.
_TypeCheck = tuple[Callable[[Any], bool], str]


@functools.lru_cache(maxsize=None)
def table(function: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """Returns the types of each keyword-only parameter of `function`, by name."""
    hints = get_type_hints(function)
    named = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return {name: _alternatives(hints[name]) for name in named}


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def given(function: Callable[..., Any], values: Mapping[str, Any], unknown: Iterable[str] = ()) -> dict[str, Any]:
    """The options of `function` among its arguments `values`, checked by their types.

    Raises:
        TypeError: for a value of the wrong type, and for the first of the `unknown` names.
        ConfigError: for a number that is out of range.
    """
    options = table(function)
    for name in unknown:
        raise unknown_argument(function.__qualname__.partition(".")[0], name, options)
    shuffle = values.get("shuffle")
    if hasattr(shuffle, "__index__") and not is_flag(shuffle):
        raise TypeError(
            f"shuffle={shuffle!r}: expected True or False; pass shuffle=True, seed={shuffle!r} for this seed"
        )
    for name, expected in options.items():
        _check(name, values[name], expected)
        if name in _AUTOMATIC and values[name] == 0:
            raise ConfigError(f"{name}=0: {_AUTOMATIC[name]}")
    return {name: values[name] for name in options}


def unknown_argument(owner: str, name: str, known: Iterable[str]) -> TypeError:
    """Returns the error for an argument that `owner` does not have. The message gives advice or the
    most similar argument."""
    message = missing(owner, "argument", name)
    if message is not None:
        return TypeError(message)
    import difflib  # slow to import, and only errors need it

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return TypeError(f"{owner} has no argument {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))


class Arguments:
    """Base of a dataclass whose errors for unknown arguments name the right one."""

    def __new__(cls, *_: Any, **given: Any) -> Any:
        known = inspect.signature(cls.__init__).parameters
        for name in given:
            if name not in known:
                raise unknown_argument(cls.__name__, name, known)
        return super().__new__(cls)


def one_of(name: str, value: str, known: Sequence[str]) -> str:
    """Returns `value` if it is one of the `known` words.

    Raises:
        ConfigError: if it is not.
    """
    if value not in known:
        raise ConfigError(f"{name}={value!r}: expected one of {', '.join(map(repr, known))}")
    return value


def data(value: Any) -> str:
    """Returns plain data as JSON, for the native module."""
    return json.dumps(value, default=_plain, allow_nan=False)


def _plain(value: Any) -> Any:
    """Converts `value` for JSON."""
    if hasattr(value, "_data"):
        return value._data()
    if is_flag(value):
        return bool(value)
    return operator.index(value) if hasattr(value, "__index__") else float(value)


def _check(name: str, value: Any, kinds: tuple[Any, ...]) -> None:
    """Checks that `value` has one of the types `kinds`, and that a number is in range."""
    expected = []
    for kind in kinds:
        accepts, text = _type_check(kind)
        if accepts(value):
            if kind is int and not 0 <= operator.index(value) < 1 << 64:
                raise ConfigError(f"{name}={value!r}: expected a whole number from 0 to 2**64 - 1")
            if kind is float and float(value) < 0:
                raise ConfigError(f"{name}={value!r}: expected 0 or more")
            if get_origin(kind) is Literal:
                one_of(name, value, get_args(kind))
            return
        expected.append(text)
    raise TypeError(f"{name}={value!r}: expected {', or '.join(text for text in expected if text)}")


def _type_check(kind: Any) -> _TypeCheck:
    """Returns the check for one type of a signature."""
    origin = get_origin(kind) or kind
    if kind is Any or origin in (tuple, collections.abc.Mapping):
        # `native` also checks the contents.
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
        # A str is a sequence of letters, which no option accepts.
        names = {int: "indices", float: "numbers", str: "names", collections.abc.Callable: "functions"}
        item = get_args(kind)[0]
        items = names.get(get_origin(item) or item, "values")
        return lambda value: hasattr(value, "__iter__") and not isinstance(value, (str, bytes)), f"a list of {items}"
    if origin is os.PathLike:
        return lambda value: isinstance(value, os.PathLike), "a path"
    return lambda value: isinstance(value, kind), f"warpfeed.{kind.__name__}"


def texts(name: str, value: Any) -> tuple[str, ...]:
    """The names in `value`.

    Raises:
        TypeError: if `value` is not a list of texts. A single text would be split into its letters.
    """
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        hint = f", such as [{value!r}]" if isinstance(value, str) else ""
        raise TypeError(f"{name}={value!r}: expected a list of names{hint}")
    names = tuple(value)
    for one in names:
        if not isinstance(one, str):
            raise TypeError(f"{name}={value!r}: expected a list of names, and {one!r} is not a str")
    return names


def is_flag(value: Any) -> bool:
    """Returns whether `value` is a ``bool`` of Python or NumPy."""
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy"


def number(name: str, value: Any) -> int:
    """Returns `value` as an integer.

    Raises:
        TypeError: if it is not a whole number, such as a fraction or True.
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
    """Raises an error for pairs of options that contradict each other."""
    for one, other in pairs:
        if values[one] is not None and values[other] is not None:
            raise ConfigError(f"{one}={values[one]!r} and {other}={values[other]!r}: set one of them")


def native(values: Mapping[str, Any], leave_out: Iterable[str] = ()) -> dict[str, Any]:
    """Converts all options that are set, except those in `leave_out`, to the form that the native
    module expects."""
    left_out = set(leave_out)
    return {
        name: _CONVERSIONS.get(name, _same)(value)
        for name, value in values.items()
        if value is not None and name not in left_out
    }


def _same(value: Any) -> Any:
    return bool(value) if is_flag(value) else value


def dtype_name(dtype: Dtype) -> str:
    """The native name of an element type, from its name here, in NumPy or in torch."""
    name = (getattr(dtype, "__name__", None) or str(dtype)).removeprefix("torch.")
    if name not in _DTYPES:
        raise ConfigError(
            f"dtype={dtype!r}: expected one of 'u8', 'f16', 'bf16', 'f32', for fields also 'f64', 'i16', 'i32', 'i64', "
            "'u16', or the same type of torch or NumPy"
        )
    return _DTYPES[name]


def _listing(sampler: Callable[[int], Any]) -> Callable[[int], list[int]]:
    """Wraps a sampler so that it returns lists of integers instead of arrays or other sequences."""

    def indices(epoch: int) -> list[int]:
        return whole(f"sampler({epoch})", sampler(epoch))

    # Error messages name the user's function.
    indices.func = sampler  # type: ignore[attr-defined]
    return indices


def _normalization(normalize: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the mean and standard deviation of each channel, on a scale of 0 to 1."""
    if isinstance(normalize, str):
        if normalize != "imagenet":
            raise ConfigError(
                f"normalize={normalize!r}: expected 'imagenet' or (mean, std); without normalize, floats are pixel / "
                "255"
            )
        return IMAGENET
    expected = "expected 'imagenet' or (mean, std), each of three numbers on a scale of 0 to 1"
    try:
        mean, std = (tuple(float(x) for x in part) for part in normalize)
    except (TypeError, ValueError):
        raise TypeError(f"normalize={normalize!r}: {expected}") from None
    if (len(mean), len(std)) != (3, 3):
        raise ConfigError(f"normalize={normalize!r}: {expected}; they have {len(mean)} and {len(std)} numbers")
    return mean, std


def _soft_labels(value: Any) -> Any:
    expected = (
        "expected (classes, smoothing), such as (1000, 0.1), or the smoothing alone, such as 0.1, if the dataset has "
        "class names"
    )
    if _is_number(value):
        # The dataset provides the number of classes.
        value = (None, value)
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"soft_labels={value!r}: {expected}")
    try:
        _check("classes", value[0], (int, type(None)))
        _check("smoothing", value[1], (float,))
    except (TypeError, ConfigError) as e:
        raise type(e)(f"soft_labels={value!r}: {e}; {expected}") from None
    return tuple(value)


def _fields(fields: Any) -> dict[str, Any]:
    if not isinstance(fields, Mapping):
        raise TypeError(f"fields={fields!r}: expected a dict of field types by name, such as {{'boxes': Boxes(100)}}")
    for name, kind in fields.items():
        if not hasattr(kind, "_describe"):
            raise TypeError(
                f"fields: {name!r} is {kind!r}; expected a field type, such as warpfeed.NdArray(...) or Boxes(...)"
            )
    return dict(fields)


def _traced(trace: Any) -> tuple[Any, tuple[int, ...]]:
    """Returns the path and the windows of a trace."""
    if isinstance(trace, (str, os.PathLike)):
        return trace, (1, 1, 3, 1)
    try:
        path, windows = trace
        return os.fspath(path), tuple(int(n) for n in windows)
    except (TypeError, ValueError):
        raise TypeError(f"trace={trace!r}: expected a path, or (path, (wait, warmup, active, repeat))") from None


def state_text(state: Any, name: str = "resume") -> str:
    """Returns a state of ``state_dict`` as JSON."""
    if not isinstance(state, Mapping):
        raise TypeError(f"{name}={state!r}: expected a result of state_dict()")
    return json.dumps(dict(state))


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "buckets": lambda buckets: (buckets._lengths, buckets.bounds),
    "classes": list,
    "classes_file": os.fspath,
    "dtype": dtype_name,
    "fields": _fields,
    "normalize": _normalization,
    "sampler": _listing,
    "resume": state_text,
    "soft_labels": _soft_labels,
    "subset": lambda indices: Indices("subset", indices),
    "trace": _traced,
    "views": list,
    "weights": lambda weights: Floats("weights", weights),
    "drop_field": lambda names: [names] if isinstance(names, str) else list(names),
}
