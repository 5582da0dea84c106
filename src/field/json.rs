//! Parses nested lists of numbers in JSON.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};

use super::number::Number;
use crate::source::{MAX_AXES, Shape};

/// Calls `write` with each number in the JSON text `bytes`, and returns the shape of the nested
/// lists. Lists at the same level must have equal lengths, and all numbers must have the same
/// depth. Booleans count as the numbers 0 and 1.
pub(super) fn parse_numbers<'a>(
    bytes: &'a [u8],
    write: impl FnMut(Number<'a>) -> Result<(), String>,
) -> Result<Shape, String> {
    let mut lists = Lists { write_number: write, shape: Shape::new(), number_depth: None, count: 0 };
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let result = Level { lists: &mut lists, depth: 0 }.deserialize(&mut json).and_then(|()| json.end());
    result.map_err(|e| format!("is not a valid JSON list of numbers: {e}"))?;
    Ok(lists.shape)
}

struct Lists<F> {
    write_number: F,
    /// Length of the first list at each level.
    shape: Shape,
    /// Depth of the first number.
    number_depth: Option<usize>,
    count: usize,
}

struct Level<'l, F> {
    lists: &'l mut Lists<F>,
    depth: usize,
}

impl<'a, F: FnMut(Number<'a>) -> Result<(), String>> Level<'_, F> {
    fn number<E: serde::de::Error>(self, number: Number<'a>) -> Result<(), E> {
        let Level { lists, depth } = self;
        if *lists.number_depth.get_or_insert(depth) != depth || lists.shape.len() > depth {
            return Err(E::custom(format_args!(
                "number {} is at depth {depth}, but other elements are nested deeper",
                lists.count
            )));
        }
        (lists.write_number)(number).map_err(|cause| E::custom(format_args!("element {} is {cause}", lists.count)))?;
        lists.count += 1;
        Ok(())
    }
}

impl<'a, F: FnMut(Number<'a>) -> Result<(), String>> DeserializeSeed<'a> for Level<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a, F: FnMut(Number<'a>) -> Result<(), String>> Visitor<'a> for Level<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a list of numbers")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.number(Number::Whole(value.into()))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.number(Number::Whole(value.into()))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.number(Number::Whole(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.number(Number::Float(value))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<(), A::Error> {
        let Level { lists, depth } = self;
        if depth == MAX_AXES || lists.number_depth.is_some_and(|number_depth| number_depth == depth) {
            return Err(A::Error::custom(format_args!("unexpected list at depth {depth}: expected a number")));
        }
        let is_first = lists.shape.len() == depth;
        if is_first {
            lists.shape.push(0);
        }
        let mut len = 0;
        while list.next_element_seed(Level { lists, depth: depth + 1 })?.is_some() {
            len += 1;
        }
        if is_first {
            lists.shape[depth] = len;
        } else if lists.shape[depth] != len {
            let expected_len = lists.shape[depth];
            return Err(A::Error::custom(format_args!(
                "a list of length {len} at the same level as a list of length {expected_len}"
            )));
        }
        Ok(())
    }
}
