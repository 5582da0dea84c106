//! Converts nested lists of numbers to JSON.
//!
//! The levels of a value follow the Dremel encoding. The repetition level is the number of
//! enclosing lists, counted from the outermost, that the value continues; all inner lists are new.
//! The definition level counts the optional or repeated fields that are present on the path to the
//! value, including the value itself.

use super::schema::Levels;
use crate::error::{Error, Result};
use crate::model::Numbers;
use crate::model::value::Element;

/// Maximum length of a row's JSON, in bytes. The length is checked before each element, so the JSON
/// may slightly exceed this length.
const MAX_JSON_BYTES: usize = 64 << 20;

pub(super) struct NestedLists {
    values: Vec<u8>,
    element: Element,
    is_bool: bool,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    levels: Levels,
    /// Definition level of a value that is not null.
    max_definition: i16,
    /// For each row, the index of its first level and of its first number, followed by the total
    /// numbers of levels and numbers.
    pub(super) rows: Vec<(usize, usize)>,
}

impl NestedLists {
    /// Returns `None` if the levels do not match the number of values, or if they do not start with
    /// a new row.
    pub(super) fn new(
        (values, element, is_bool): (Vec<u8>, Element, bool),
        definitions: Vec<i16>,
        repetitions: Vec<i16>,
        (levels, max_definition): (Levels, i16),
    ) -> Option<Self> {
        let (mut rows, mut next) = (Vec::new(), 0);
        for (level, (definition, &repetition)) in definitions.iter().zip(&repetitions).enumerate() {
            if repetition == 0 {
                rows.push((level, next));
            }
            next += usize::from(*definition == max_definition);
        }
        rows.push((definitions.len(), next));
        let has_all_values = definitions.len() == repetitions.len() && next == values.len() / element.size();
        let starts_with_row = rows[0].0 == 0;
        (has_all_values && starts_with_row).then_some(NestedLists {
            values,
            element,
            is_bool,
            definitions,
            repetitions,
            levels,
            max_definition,
            rows,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.len() + 4 * self.definitions.len() + self.rows.len() * size_of::<(usize, usize)>()
    }

    /// Appends the row as JSON to `out`. Returns `false`, and appends nothing, if the row is null.
    /// Fails if the JSON is too long.
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<bool> {
        let ((first_level, mut next), (end_level, _)) = (self.rows[row], self.rows[row + 1]);
        let (lists, start, mut open_lists) = (self.levels.element_levels(), out.len(), 0);
        if self.definitions[first_level] + 1 < lists[0] {
            return Ok(false);
        }
        for level in first_level..end_level {
            let (definition, repetition) = (self.definitions[level], self.repetitions[level] as usize);
            if level > first_level {
                // This value continues the list at depth `repetition`, so close the deeper lists.
                out.extend(std::iter::repeat_n(b']', open_lists - repetition.min(open_lists)));
                open_lists = repetition.min(open_lists);
                out.push(b',');
            }
            if out.len() - start > MAX_JSON_BYTES {
                return Err(Error::in_source("a nested list exceeds 64 MiB as JSON"));
            }
            let literal = loop {
                match lists.get(open_lists) {
                    Some(&element) if definition + 1 < element => break b"null".as_slice(),
                    Some(&element) if definition < element => break b"[]",
                    Some(_) => out.push(b'['),
                    // A null element, or a damaged level above the maximum.
                    None if definition != self.max_definition => break b"null",
                    None => break b"",
                }
                open_lists += 1;
            };
            out.extend_from_slice(literal);
            if literal.is_empty() {
                let size = self.element.size();
                let number = Numbers::from_element(&self.values[next * size..][..size], self.element, &[]);
                match number.expect("the slice has the size of one element") {
                    flag if self.is_bool => {
                        out.extend_from_slice(if flag.integer() == Some(0) { b"false" } else { b"true" })
                    }
                    number => number.write_json(out),
                }
                next += 1;
            }
        }
        out.extend(std::iter::repeat_n(b']', open_lists));
        Ok(true)
    }
}
