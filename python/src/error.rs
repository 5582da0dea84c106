use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use warpfeed::{Error, ErrorKind};

use crate::option_names::in_python;

/// The operating system's error code for "no such file or directory", which is the same on every
/// system that Rust supports.
const ENOENT: i32 = 2;

/// Returns the class `warpfeed.WarpfeedError`.
fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "warpfeed._error", "WarpfeedError")
}

/// Creates an exception of the class that corresponds to `kind`. `args` are the arguments of
/// `warpfeed.WarpfeedError`.
fn exception<'py>(py: Python<'py>, kind: ErrorKind, os_code: Option<i32>, args: impl PyCallArgs<'py>) -> PyErr {
    let name = match (kind, os_code) {
        (ErrorKind::Config, _) => "ConfigError",
        (ErrorKind::Io, Some(ENOENT)) => "NotFoundError",
        (ErrorKind::Io, _) => "StorageError",
        (ErrorKind::Timeout, _) => "LoaderTimeoutError",
        _ => "WarpfeedError",
    };
    let made = py.import("warpfeed._error").and_then(|module| module.getattr(name)?.call1(args));
    made.map_or_else(|e| e, PyErr::from_value)
}

/// Returns the kind in Python's spelling, such as `decode` or `too_many_skipped`.
fn kind(kind: ErrorKind) -> String {
    let mut spelt = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !spelt.is_empty() {
            spelt.push('_');
        }
        spelt.push(letter.to_ascii_lowercase());
    }
    spelt
}

/// Converts an error of the loader to a Python exception. If user code raised an exception, that
/// exception becomes the cause.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let path = error.path().map(|path| path.to_string_lossy().into_owned());
    // Translate only the cause, because the location consists of the user's own names.
    let whole = error.to_string();
    let place = whole.strip_suffix(error.cause()).unwrap_or_default();
    let text = format!("{place}{}", in_python(error.cause()));
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

/// Creates an error of kind `kind` for an exception in user code. The exception becomes the source
/// of the error, and `place` names the code.
///
/// The loader may store the error, so the local variables in the traceback are cleared. Otherwise a
/// batch among them would keep its slot occupied.
pub(crate) fn of_program(py: Python<'_>, kind: ErrorKind, place: &str, e: PyErr) -> Error {
    // Normalizing the exception attaches its traceback.
    let free = || py.import("warpfeed._error")?.call_method1("free_frames", (e.clone_ref(py).into_value(py),));
    // Best effort: the exception is the same if this fails.
    let _: PyResult<_> = free();
    let name = e.get_type(py).name().map_or_else(|_| String::new(), |name| name.to_string());
    Error::new(kind, format!("{place}{name}: {}", e.value(py))).with_source(e)
}

/// Converts the error of a call to an exception.
pub(crate) trait Raised<T> {
    fn raised(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Raised<T> for warpfeed::Result<T> {
    fn raised(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|e| raised(py, &e))
    }
}

/// Creates the exception for an option that has an invalid value.
pub(crate) fn refused(py: Python<'_>, message: String) -> PyErr {
    exception(py, ErrorKind::Config, None, (message,))
}

/// Adds the name and the value of the option to `error`, unless it names an option already.
pub(crate) fn of_option(name: &str, value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    at_place(value.py(), &format!("{name}={}", shown(value)), error)
}

/// Adds the call to `error`, unless it names a location already.
pub(crate) fn of_call(of: &str, name: &str, args: &Bound<'_, PyTuple>, error: PyErr) -> PyErr {
    let args_shown: Vec<_> = args.iter().map(|arg| shown(&arg)).collect();
    at_place(args.py(), &format!("{of}.{name}({})", args_shown.join(", ")), error)
}

/// Formats a value for error messages.
fn shown(value: &Bound<'_, PyAny>) -> String {
    const MOST: usize = 80;
    let mut shown = value.repr().map_or_else(|_| "...".to_owned(), |repr| repr.to_string());
    if let Some((end, _)) = shown.char_indices().nth(MOST) {
        shown.replace_range(end.., "...");
    }
    shown
}

fn at_place(py: Python<'_>, place: &str, error: PyErr) -> PyErr {
    if class(py).is_ok_and(|class| error.is_instance(py, class)) {
        return error;
    }
    let message = format!("{place}: {}", error.value(py));
    if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(message)
    } else if error.is_instance_of::<PyOverflowError>(py) || error.is_instance_of::<PyValueError>(py) {
        refused(py, message)
    } else {
        error
    }
}
