use crate::model::{Numbers, Value};

/// The value of one column in one row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell<'a> {
    /// The row has no value. It becomes no field.
    Null,
    Bytes(&'a [u8]),
    Text(&'a str),
    /// Numbers of any shape, in the machine's byte order. One number has no axes.
    Numbers(Numbers<'a>),
    /// JSON text.
    Json(&'a str),
}

impl<'a> Cell<'a> {
    /// The bytes of a cell of bytes.
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Cell::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The value of the field.
    pub(crate) fn value(self) -> Option<Value<'a>> {
        match self {
            Cell::Null => None,
            Cell::Bytes(bytes) => Some(Value::Bytes(bytes)),
            Cell::Text(text) | Cell::Json(text) => Some(Value::Text(text)),
            Cell::Numbers(numbers) => Some(Value::Numbers(numbers)),
        }
    }

    /// The integer in a cell of one integer that fits an `i64`.
    pub(crate) fn integer(self) -> Option<i64> {
        match self {
            Cell::Numbers(numbers) => numbers.integer(),
            _ => None,
        }
    }
}
