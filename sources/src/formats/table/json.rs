//! Parses JSON Lines.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::cells::{CellKind, Cells};

/// `line` must be a JSON object without repeated keys. `column` maps a key to its column.
pub(super) fn parse_row(line: &str, cells: &mut Cells, column: impl FnMut(&str) -> usize) -> Result<(), String> {
    cells.text.clear();
    cells.cells.clear();
    let mut json = serde_json::Deserializer::from_str(line);
    let read = json.deserialize_map(ObjectVisitor { cells, column }).and_then(|()| json.end());
    // The parser sees a single line, so its line number is always 1.
    read.map_err(|e| e.to_string().replace(" at line 1 column ", " at column "))
}

struct ObjectVisitor<'c, F> {
    cells: &'c mut Cells,
    column: F,
}

impl<'a, F: FnMut(&str) -> usize> Visitor<'a> for ObjectVisitor<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one JSON object per line")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut object: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = object.next_key()? {
            let column = (self.column)(&key);
            let Cells { text, cells, .. } = &mut *self.cells;
            if cells.len() <= column {
                cells.resize(column + 1, (None, 0..0));
            }
            if cells[column].0.is_some() {
                return Err(A::Error::custom(format_args!("key {key:?} occurs twice")));
            }
            let (value, start) = (object.next_value::<&RawValue>()?.get(), text.len());
            let cell = match value.as_bytes().first() {
                Some(b'"') => {
                    let Key(value) = serde_json::from_str(value).map_err(A::Error::custom)?;
                    text.extend_from_slice(value.as_bytes());
                    CellKind::Text
                }
                Some(b'n') => CellKind::Missing,
                first => {
                    text.extend_from_slice(value.as_bytes());
                    if matches!(first, Some(b'[' | b'{')) { CellKind::Json } else { CellKind::Text }
                }
            };
            cells[column] = (Some(cell), start..text.len());
        }
        Ok(())
    }
}

/// A JSON string, which is borrowed unless it contains escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
