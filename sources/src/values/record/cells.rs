//! [`Cell`]: the value of a column in a row.

use crate::model::{Numbers, Value};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell<'a> {
    /// The cell is empty, so the sample lacks the field.
    Null,
    Bytes(&'a [u8]),
    Text(&'a str),
    /// Numbers of any shape in native byte order. A scalar has no axes.
    Numbers(Numbers<'a>),
    Json(&'a str),
}

impl<'a> Cell<'a> {
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Cell::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn value(self) -> Option<Value<'a>> {
        match self {
            Cell::Null => None,
            Cell::Bytes(bytes) => Some(Value::Bytes(bytes)),
            Cell::Text(text) | Cell::Json(text) => Some(Value::Text(text)),
            Cell::Numbers(numbers) => Some(Value::Numbers(numbers)),
        }
    }

    /// Returns the value if it is a single integer that fits in an `i64`.
    pub(crate) fn integer(self) -> Option<i64> {
        match self {
            Cell::Numbers(numbers) => numbers.integer(),
            _ => None,
        }
    }
}
