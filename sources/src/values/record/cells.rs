//! [`Cell`]: the value of a column in a row.

use crate::model::{Numbers, Value};

/// The value of a column in a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell<'a> {
    /// There is no value, so the sample lacks the field.
    Null,
    Bytes(&'a [u8]),
    Text(&'a str),
    /// Numbers of any shape in native byte order. A scalar has no axes.
    Numbers(Numbers<'a>),
    /// JSON text.
    Json(&'a str),
}

impl<'a> Cell<'a> {
    /// Returns the bytes, if the cell contains bytes.
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Cell::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Converts the cell to a field value.
    pub(crate) fn value(self) -> Option<Value<'a>> {
        match self {
            Cell::Null => None,
            Cell::Bytes(bytes) => Some(Value::Bytes(bytes)),
            Cell::Text(text) | Cell::Json(text) => Some(Value::Text(text)),
            Cell::Numbers(numbers) => Some(Value::Numbers(numbers)),
        }
    }

    /// Returns the integer, if the cell contains a single integer that fits in an `i64`.
    pub(crate) fn integer(self) -> Option<i64> {
        match self {
            Cell::Numbers(numbers) => numbers.integer(),
            _ => None,
        }
    }
}
