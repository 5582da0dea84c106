//! Converts option values through JSON.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

pub(crate) fn from_value<T: DeserializeOwned>(value: &Bound<'_, PyAny>) -> PyResult<T> {
    parse_value(value, |json| serde_json::from_str(json))
}

/// Converts `value` to JSON and parses it. If `parse` fails on a value in a nested dict, the error
/// names the key of that value.
pub(crate) fn parse_value<T>(
    value: &Bound<'_, PyAny>,
    parse: impl FnOnce(&str) -> serde_json::Result<T>,
) -> PyResult<T> {
    let json: String = value.py().import("warpfeed._options")?.call_method1("to_json", (value,))?.extract()?;
    parse(&json).map_err(|e| {
        let message = e.to_string();
        let cause = message.split(" at line ").next().unwrap_or_default();
        // The last key before the position of the error names the invalid value. The caller adds
        // the outermost key, which is the option.
        let mut names = json[..e.column().min(json.len())].rsplit("\":").skip(1);
        let name = names.next().and_then(|before| before.rsplit('"').next()).filter(|_| names.next().is_some());
        let text = name.map_or_else(|| cause.to_owned(), |name| format!("{name}: {cause}"));
        if cause.starts_with("invalid type") { PyTypeError::new_err(text) } else { PyValueError::new_err(text) }
    })
}
