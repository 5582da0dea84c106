//! Converts the crate's errors to Python exceptions, and exceptions from user code to errors.

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use warpfeed::{Error, ErrorKind};

use crate::option_names::in_python;

/// "No such file or directory", the same on every supported operating system.
const ENOENT: i32 = 2;

fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "warpfeed._error", "WarpfeedError")
}

/// Creates an exception of a class that depends on `kind` and `os_code`. `args` are the arguments
/// of `warpfeed.WarpfeedError`.
fn exception<'py>(py: Python<'py>, kind: ErrorKind, os_code: Option<i32>, args: impl PyCallArgs<'py>) -> PyErr {
    let name = match (kind, os_code) {
        (ErrorKind::Config, _) => "ConfigError",
        (ErrorKind::Io, Some(ENOENT)) => "NotFoundError",
        (ErrorKind::Io, _) => "StorageError",
        (ErrorKind::Timeout, _) => "LoaderTimeoutError",
        _ => "WarpfeedError",
    };
    let created = py.import("warpfeed._error").and_then(|module| module.getattr(name)?.call1(args));
    created.map_or_else(|e| e, PyErr::from_value)
}

/// Returns the name of a kind in snake case, as in `too_many_skipped`.
fn kind(kind: ErrorKind) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Converts an error of the loader. An exception from user code becomes the `__cause__`.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let path = error.path().map(|path| path.to_string_lossy().into_owned());
    // Translate only the cause: the location contains the user's own names.
    let message = error.to_string();
    let location = message.strip_suffix(error.cause()).unwrap_or_default();
    let advice = field_advice(error.cause()).unwrap_or_default();
    let text = format!("{location}{}{advice}", in_python(error.cause()));
    let args = (text, kind(error.kind()), error.sample(), error.key(), path, error.os_code());
    let raised = exception(py, error.kind(), error.os_code(), args);
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<PyErr>() {
            raised.set_cause(py, Some(cause.clone_ref(py)));
            break;
        }
        source = cause.source();
    }
    raised
}

/// Returns advice if `cause` says that a field is missing because a Python dataset returned its
/// value in a form that was stored as JSON or as an array.
fn field_advice(cause: &str) -> Option<String> {
    let after = |start: &str| cause.split_once(start)?.1.split_once("\" among the fields ");
    let is_stored = |(name, stored): (&str, &str), suffix| stored.contains(&format!("\"{name}{suffix}\""));
    if let Some(names) = after("no image \"").filter(|&names| is_stored(names, ".json") || is_stored(names, ".npy")) {
        let name = names.0;
        return Some(format!(
            "; in a Python dataset, an array, or a list of arrays or paths, contains images only if the field is \
             \"image\" or its name has the extension of an image: rename the field to \"{name}.jpg\", and pass \
             source_field=\"{name}.jpg\""
        ));
    }
    after("no mask \"").filter(|&names| is_stored(names, ".json")).map(|_| {
        "; in a Python dataset, masks must be an array, not a list: for the masks of a clip, return numpy.stack(masks)"
            .to_owned()
    })
}

/// Wraps an exception from user code. The message begins with `prefix`, such as the name of the
/// callback.
///
/// The local variables in the traceback are cleared, because the loader may store the error, and a
/// batch among them would keep its slot in use.
pub(crate) fn user_error(py: Python<'_>, kind: ErrorKind, prefix: &str, e: PyErr) -> Error {
    // `into_value` attaches the traceback to the exception.
    let free = || py.import("warpfeed._error")?.call_method1("free_frames", (e.clone_ref(py).into_value(py),));
    // If this fails, the variables merely stay alive.
    let _: PyResult<_> = free();
    let name = e.get_type(py).name().map_or_else(|_| String::new(), |name| name.to_string());
    Error::new(kind, format!("{prefix}{name}: {}", e.value(py))).with_source(e)
}

pub(crate) trait Raised<T> {
    fn raised(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Raised<T> for warpfeed::Result<T> {
    fn raised(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|e| raised(py, &e))
    }
}

pub(crate) fn config_error(py: Python<'_>, message: String) -> PyErr {
    exception(py, ErrorKind::Config, None, (message,))
}

/// Prefixes a `TypeError`, `ValueError` or `OverflowError` with the name and the value of an
/// option. A `ValueError` or `OverflowError` becomes a `ConfigError`. Returns a `WarpfeedError` and
/// all other exceptions unchanged.
pub(crate) fn in_option(name: &str, value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    with_location(value.py(), &format!("{name}={}", short_repr(value)), error)
}

pub(crate) fn in_call(class: &str, name: &str, args: &Bound<'_, PyTuple>, error: PyErr) -> PyErr {
    let args_text: Vec<_> = args.iter().map(|arg| short_repr(&arg)).collect();
    with_location(args.py(), &format!("{class}.{name}({})", args_text.join(", ")), error)
}

fn short_repr(value: &Bound<'_, PyAny>) -> String {
    const MAX_CHARS: usize = 80;
    let mut text = value.repr().map_or_else(|_| "...".to_owned(), |repr| repr.to_string());
    if let Some((end, _)) = text.char_indices().nth(MAX_CHARS) {
        text.replace_range(end.., "...");
    }
    text
}

fn with_location(py: Python<'_>, location: &str, error: PyErr) -> PyErr {
    if class(py).is_ok_and(|class| error.is_instance(py, class)) {
        return error;
    }
    let message = format!("{location}: {}", error.value(py));
    if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(message)
    } else if error.is_instance_of::<PyOverflowError>(py) || error.is_instance_of::<PyValueError>(py) {
        config_error(py, message)
    } else {
        error
    }
}
