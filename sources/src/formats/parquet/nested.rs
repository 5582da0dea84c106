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

/// Maximum length of a row's JSON, in bytes.
const MAX_JSON: usize = 64 << 20;

pub(super) struct Nested {
    values: Vec<u8>,
    element: Element,
    flags: bool,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    levels: Levels,
    /// Definition level of a value that is not null.
    max: i16,
    /// For each row, the index of its first level and of its first number, followed by the total
    /// numbers of levels and numbers.
    pub(super) rows: Vec<(usize, usize)>,
}

impl Nested {
    /// Returns `None` if the levels do not match the number of values.
    pub(super) fn new(
        (values, element, flags): (Vec<u8>, Element, bool),
        definitions: Vec<i16>,
        repetitions: Vec<i16>,
        (levels, max): (Levels, i16),
    ) -> Option<Self> {
        let (mut rows, mut next) = (Vec::new(), 0);
        for (level, (definition, &repetition)) in definitions.iter().zip(&repetitions).enumerate() {
            if repetition == 0 {
                rows.push((level, next));
            }
            next += usize::from(*definition == max);
        }
        rows.push((definitions.len(), next));
        let is_whole = definitions.len() == repetitions.len() && next == values.len() / element.size();
        let begins = rows[0].0 == 0;
        (is_whole && begins).then_some(Nested { values, element, flags, definitions, repetitions, levels, max, rows })
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.len() + 4 * self.definitions.len() + self.rows.len() * size_of::<(usize, usize)>()
    }

    /// Returns `false` if the value is null.
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<bool> {
        let ((from, mut next), (to, _)) = (self.rows[row], self.rows[row + 1]);
        let (lists, start, mut open) = (self.levels.all(), out.len(), 0);
        if self.definitions[from] + 1 < lists[0] {
            return Ok(false);
        }
        for level in from..to {
            let (definition, repetition) = (self.definitions[level], self.repetitions[level] as usize);
            if level > from {
                // This value continues the list at depth `repetition`, so close the lists inside
                // the previous element.
                out.extend(std::iter::repeat_n(b']', open - repetition.min(open)));
                open = repetition.min(open);
                out.push(b',');
            }
            if out.len() - start > MAX_JSON {
                return Err(Error::in_source("a nested list exceeds 64 MiB as JSON"));
            }
            let ends = loop {
                match lists.get(open) {
                    Some(&element) if definition + 1 < element => break b"null".as_slice(),
                    Some(&element) if definition < element => break b"[]",
                    Some(_) => out.push(b'['),
                    // A null element, or a damaged level above the maximum.
                    None if definition != self.max => break b"null",
                    None => break b"",
                }
                open += 1;
            };
            out.extend_from_slice(ends);
            if ends.is_empty() {
                let size = self.element.size();
                let number = Numbers::from_element(&self.values[next * size..][..size], self.element, &[]);
                match number.expect("the slice has the size of one element") {
                    flag if self.flags => {
                        out.extend_from_slice(if flag.integer() == Some(0) { b"false" } else { b"true" })
                    }
                    number => number.write_json(out),
                }
                next += 1;
            }
        }
        out.extend(std::iter::repeat_n(b']', open));
        Ok(true)
    }
}
