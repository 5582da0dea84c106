use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use warpfeed::{Error, ErrorKind};

use crate::words::in_python;

/// The class `warpfeed.WarpfeedError`.
fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "warpfeed._error", "WarpfeedError")
}

/// The kind as Python spells it: `decode`, `too_many_skipped`.
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

/// The Python exception of an error of the loader. An exception of a Python source is its cause.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let path = error.path().map(|path| path.to_string_lossy().into_owned());
    let args = (in_python(&error.to_string()), kind(error.kind()), error.sample(), error.key(), path, error.os_code());
    let exception = class(py).and_then(|class| class.call1(args));
    let raised = exception.map_or_else(|e| e, PyErr::from_value);
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

/// Turns the error of a call into an exception.
pub(crate) trait Raised<T> {
    fn raised(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Raised<T> for warpfeed::Result<T> {
    fn raised(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|e| raised(py, &e))
    }
}
