"""Checks and converts the options of `Loader`, `Decoder` and `pack`.

The signature of each function defines the names, types and defaults of its options. :func:`checked`
checks values against the types, and :func:`to_native` converts them. An error for an invalid value
names the option and the value.
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
from ._number_lists import Floats, Indices, integers
from ._other_names import missing
from ._types import Dtype

Path = Union[str, os.PathLike[str]]

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

_DTYPES = {
    "u8": "u8", "uint8": "u8", "f32": "f32", "float32": "f32", "float": "f32", "f16": "f16", "float16": "f16",
    "half": "f16", "bf16": "bf16", "bfloat16": "bf16", "i64": "i64", "int64": "i64", "long": "i64",
    "i16": "i16", "int16": "i16", "i32": "i32", "int32": "i32", "u16": "u16", "uint16": "u16",
    "f64": "f64", "float64": "f64", "double": "f64",
}  # fmt: skip

#: Options that may be left out but must be at least 1, each with the advice in the error message.
_NONZERO = {
    "num_workers": "expected at least 1. Workers are threads that decode without the interpreter's lock, and the main "
    "thread does not load. Leave num_workers out for one thread per core, or pass 1 for the fewest",
    "prefetch": "expected at least 1. Leave prefetch out to let the loader choose, or pass 1 for the fewest batches",
    "max_in_flight": "expected at least 1",
    "batch_size": "expected at least 1",
    "global_batch_size": "expected at least 1 per rank",
}

_TypeCheck = tuple[Callable[[Any], bool], str]


@functools.lru_cache(maxsize=None)
def option_types(function: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """Returns the accepted types of each keyword-only parameter of `function`, by name."""
    hints = get_type_hints(function)
    option_names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return {name: _alternatives(hints[name]) for name in option_names}


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def checked(function: Callable[..., Any], values: Mapping[str, Any], unknown: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the options of `function` from `values`, its local variables, after checking their
    types. `unknown` contains the names of arguments that the function does not have.

    Raises:
        TypeError: if a value has the wrong type, or if `unknown` is not empty.
        ConfigError: if a number is out of range, or a string is not one of the supported values.
    """
    options = option_types(function)
    for name in unknown:
        raise unknown_argument(function.__qualname__.partition(".")[0], name, options)
    shuffle = values.get("shuffle")
    if hasattr(shuffle, "__index__") and not is_flag(shuffle):
        raise TypeError(
            f"shuffle={shuffle!r}: expected True or False; pass shuffle=True, seed={shuffle!r} for this seed"
        )
    for name, expected in options.items():
        value = values[name]
        if name in _NONZERO and hasattr(type(value), "__index__") and not is_flag(value) and operator.index(value) < 1:
            raise ConfigError(f"{name}={value!r}: {_NONZERO[name]}")
        _check(name, value, expected)
    return {name: values[name] for name in options}


def unknown_argument(owner: str, name: str, known: Iterable[str]) -> TypeError:
    """Returns the error for an unknown argument. Its message contains advice from `_other_names`,
    or suggests the most similar argument."""
    message = missing(owner, "argument", name)
    if message is not None:
        return TypeError(message)
    import difflib  # slow to import, and needed only for errors

    similar_names = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return TypeError(
        f"{owner} has no argument {name!r}" + (f"; did you mean {similar_names[0]!r}?" if similar_names else "")
    )


class Arguments:
    """Base class of dataclasses whose error for an unknown argument suggests a known one."""

    def __new__(cls, *_: Any, **arguments: Any) -> Any:
        known = inspect.signature(cls.__init__).parameters
        for name in arguments:
            if name not in known:
                raise unknown_argument(cls.__name__, name, known)
        return super().__new__(cls)


def reject_bytes(name: str, data: Any) -> None:
    """Raises a TypeError if `data` is bytes, which would be opened as a dataset of numbers."""
    if isinstance(data, (bytes, bytearray)):
        raise TypeError(f"{name}={data!r:.80}: expected a path as a str or an os.PathLike, not {type(data).__name__}")


def one_of(name: str, value: str, known: Sequence[str]) -> str:
    """Checks that `value`, the value of the option `name`, is one of `known`, and returns it.

    Raises:
        ConfigError: if `value` is not one of `known`.
    """
    if value not in known:
        raise ConfigError(f"{name}={value!r}: expected one of {', '.join(map(repr, known))}")
    return value


def to_json(value: Any) -> str:
    return json.dumps(value, default=_json_default, allow_nan=False)


def _json_default(value: Any) -> Any:
    """Converts an object with ``_data``, such as an augmentation, or a NumPy number."""
    if hasattr(value, "_data"):
        return value._data()
    if is_flag(value):
        return bool(value)
    return operator.index(value) if hasattr(value, "__index__") else float(value)


def _check(name: str, value: Any, kinds: tuple[Any, ...]) -> None:
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
    origin = get_origin(kind) or kind
    if kind is Any or origin in (tuple, collections.abc.Mapping):
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
        # Reject str, which would otherwise be a list of characters.
        names = {int: "indices", float: "numbers", str: "names", collections.abc.Callable: "functions"}
        item = get_args(kind)[0]
        items = names.get(get_origin(item) or item, "values")
        return lambda value: hasattr(value, "__iter__") and not isinstance(value, (str, bytes)), f"a list of {items}"
    if origin is os.PathLike:
        return lambda value: isinstance(value, os.PathLike), "a path"
    return lambda value: isinstance(value, kind), f"warpfeed.{kind.__name__}"


def name_tuple(name: str, value: Any) -> tuple[str, ...]:
    """Converts the list of names `value` to a tuple.

    Raises:
        TypeError: if `value` is not a list of ``str``. A single ``str`` is rejected, because it
            would be split into characters.
    """
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        hint = f", such as [{value!r}]" if isinstance(value, str) else ""
        raise TypeError(f"{name}={value!r}: expected a list of names{hint}")
    names = tuple(value)
    for item in names:
        if not isinstance(item, str):
            raise TypeError(f"{name}={value!r}: expected a list of names, but {item!r} is not a str")
    return names


def is_flag(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy"


def integer(name: str, value: Any) -> int:
    """Converts `value`, the value of the option `name`, to an int.

    Raises:
        TypeError: if `value` is not an integer, for example because it is a float or True.
        ConfigError: if `value` is out of range.
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
    for first, second in pairs:
        if values[first] is not None and values[second] is not None:
            raise ConfigError(f"{first}={values[first]!r} and {second}={values[second]!r}: set one of them")


def to_native(values: Mapping[str, Any], leave_out: Iterable[str] = ()) -> dict[str, Any]:
    """Converts all options that are not None, except `leave_out`, to the form that the extension
    module expects."""
    excluded_names = set(leave_out)
    return {
        name: _CONVERSIONS.get(name, _flag_as_bool)(value)
        for name, value in values.items()
        if value is not None and name not in excluded_names
    }


def _flag_as_bool(value: Any) -> Any:
    return bool(value) if is_flag(value) else value


def dtype_name(dtype: Dtype) -> str:
    """Returns the Rust name of an element type, which may be a torch or NumPy type."""
    name = (getattr(dtype, "__name__", None) or str(dtype)).removeprefix("torch.")
    if name not in _DTYPES:
        raise ConfigError(
            f"dtype={dtype!r}: expected one of 'u8', 'f16', 'bf16', 'f32', for fields also 'f64', 'i16', 'i32', 'i64', "
            "'u16', or the corresponding torch or NumPy type"
        )
    return _DTYPES[name]


def _list_sampler(sampler: Callable[[int], Any]) -> Callable[[int], list[int]]:
    """Wraps `sampler` so that its results are lists of integers."""

    def indices(epoch: int) -> list[int]:
        return integers(f"sampler({epoch})", sampler(epoch))

    # `name_of` reads this attribute, so that error messages name the user's function.
    indices.func = sampler  # type: ignore[attr-defined]
    return indices


def normalization(normalize: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the means and the standard deviations of the channels, on a scale of 0 to 1."""
    if isinstance(normalize, str):
        if normalize != "imagenet":
            raise ConfigError(
                f"normalize={normalize!r}: expected 'imagenet' or (mean, std); to get pixel / 255, leave normalize out"
            )
        return IMAGENET
    expected = "expected 'imagenet' or (mean, std), each of three numbers on a scale of 0 to 1"
    try:
        mean, std = (tuple(float(x) for x in values) for values in normalize)
    except (TypeError, ValueError):
        raise TypeError(f"normalize={normalize!r}: {expected}") from None
    if (len(mean), len(std)) != (3, 3):
        raise ConfigError(f"normalize={normalize!r}: {expected}; found {len(mean)} and {len(std)} numbers")
    return mean, std


def _soft_labels(value: Any) -> Any:
    expected = (
        "expected (classes, smoothing), such as (1000, 0.1), or the smoothing alone, such as 0.1, if the dataset has "
        "class names"
    )
    if _is_number(value):
        # The extension module takes the number of classes from the dataset.
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


def _trace(trace: Any) -> tuple[Any, tuple[int, ...]]:
    if isinstance(trace, (str, os.PathLike)):
        return trace, (1, 1, 3, 1)
    try:
        path, (wait, warmup, active, repeat) = trace
        return os.fspath(path), (int(wait), int(warmup), int(active), int(repeat))
    except (TypeError, ValueError):
        raise TypeError(f"trace={trace!r}: expected a path, or (path, (wait, warmup, active, repeat))") from None


def state_text(state: Any, name: str = "resume") -> str:
    if not isinstance(state, Mapping):
        hint = "; parse JSON with json.loads" if isinstance(state, (str, bytes)) else ""
        raise TypeError(f"{name}={state!r:.80}: expected a result of state_dict(){hint}")
    try:
        return json.dumps(dict(state))
    except (TypeError, ValueError) as e:
        raise TypeError(f"{name} contains a value that is not JSON: expected a result of state_dict(); {e}") from None


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "buckets": lambda buckets: buckets._options(),
    "classes": list,
    "classes_file": os.fspath,
    "dtype": dtype_name,
    "fields": _fields,
    "normalize": normalization,
    "sampler": _list_sampler,
    "resume": state_text,
    "soft_labels": _soft_labels,
    "subset": lambda indices: Indices("subset", indices),
    "trace": _trace,
    "views": list,
    "weights": lambda weights: Floats("weights", weights),
    "drop_field": lambda names: [names] if isinstance(names, str) else list(names),
}
