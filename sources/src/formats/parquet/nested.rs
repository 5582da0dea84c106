//! Numbers in lists of lists, which become JSON.

use super::schema::Levels;
use crate::error::{Error, Result};
use crate::model::Numbers;
use crate::model::value::Element;

/// Maximum length of the JSON of a row.
const MAX_JSON: usize = 64 << 20;

/// Numbers with the levels that say where lists begin and end.
pub(super) struct Nested {
    values: Vec<u8>,
    element: Element,
    /// Whether the numbers are flags.
    flags: bool,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    levels: Levels,
    /// Definition level of a number that is not null.
    max: i16,
    /// The first level and the first number of each row, then the ends.
    pub(super) rows: Vec<(usize, usize)>,
}

impl Nested {
    /// `None` if the levels do not have as many numbers as `values`.
    pub(super) fn new(
        (values, element, flags): (Vec<u8>, Element, bool),
        definitions: Vec<i16>,
        repetitions: Vec<i16>,
        (levels, max): (Levels, i16),
    ) -> Option<Self> {
        let (mut rows, mut next) = (Vec::new(), 0);
        for (place, (definition, &repetition)) in definitions.iter().zip(&repetitions).enumerate() {
            if repetition == 0 {
                rows.push((place, next));
            }
            next += usize::from(*definition == max);
        }
        rows.push((definitions.len(), next));
        let whole = definitions.len() == repetitions.len() && next == values.len() / element.size();
        // The first level begins the first row.
        let begins = rows[0].0 == 0;
        (whole && begins).then_some(Nested { values, element, flags, definitions, repetitions, levels, max, rows })
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.values.len() + 4 * self.definitions.len() + self.rows.len() * size_of::<(usize, usize)>()
    }

    /// Appends row `row` as JSON. Returns `false` if the row has no list.
    ///
    /// # Errors
    /// If its JSON is too long, or there is no memory for it.
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<bool> {
        let ((from, mut next), (to, _)) = (self.rows[row], self.rows[row + 1]);
        let (lists, start, mut open) = (self.levels.all(), out.len(), 0);
        if self.definitions[from] + 1 < lists[0] {
            return Ok(false);
        }
        for place in from..to {
            let (definition, repetition) = (self.definitions[place], self.repetitions[place] as usize);
            if place > from {
                // A new element of list `repetition`: the lists inside its last element end.
                out.extend(std::iter::repeat_n(b']', open - repetition.min(open)));
                open = repetition.min(open);
                out.push(b',');
            }
            if out.len() - start > MAX_JSON {
                return Err(Error::in_source("a nested value is longer than 64 MiB as JSON"));
            }
            let ends = loop {
                match lists.get(open) {
                    Some(&element) if definition + 1 < element => break b"null".as_slice(),
                    Some(&element) if definition < element => break b"[]",
                    Some(_) => out.push(b'['),
                    // Damaged levels may exceed the maximum.
                    None if definition != self.max => break b"null",
                    None => break b"",
                }
                open += 1;
            };
            out.extend_from_slice(ends);
            if ends.is_empty() {
                let size = self.element.size();
                let number = Numbers::of_element(&self.values[next * size..][..size], self.element, &[]);
                match number.expect("the bytes of one number") {
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
