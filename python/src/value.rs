//! Converts option values to plain data.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

/// Plain data: numbers, texts, lists, and dicts by name.
pub(crate) fn given<T: DeserializeOwned>(value: &Bound<'_, PyAny>) -> PyResult<T> {
    read(value, |json| serde_json::from_str(json))
}

/// Passes plain data to `to` as JSON.
pub(crate) fn read<T>(value: &Bound<'_, PyAny>, to: impl FnOnce(&str) -> serde_json::Result<T>) -> PyResult<T> {
    let json: String = value.py().import("warpfeed._options")?.call_method1("data", (value,))?.extract()?;
    to(&json).map_err(|e| {
        let whole = e.to_string();
        let cause = whole.split(" at line ").next().unwrap_or_default();
        // The value ends where the reader stopped. The outer name is known.
        let mut names = json[..e.column().min(json.len())].rsplit("\":").skip(1);
        let name = names.next().and_then(|before| before.rsplit('"').next()).filter(|_| names.next().is_some());
        let text = name.map_or_else(|| cause.to_owned(), |name| format!("{name}: {cause}"));
        if cause.starts_with("invalid type") { PyTypeError::new_err(text) } else { PyValueError::new_err(text) }
    })
}
