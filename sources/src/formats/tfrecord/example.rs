//! Parses `tf.train.Example` messages (see `tensorflow/core/example/example.proto`).

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::model::value::Element;
use crate::storage::RowBytes;
use crate::values::protobuf::{Field, Fields, varint};
use crate::values::record::{ColumnValue, NamedCell};

enum Values<'a> {
    Bytes(Vec<&'a [u8]>),
    /// Little-endian floats. Each slice contains one element or a packed run of elements.
    Floats(Vec<&'a [u8]>),
    Ints(Vec<i64>),
    Empty,
}

impl Values<'_> {
    fn len(&self) -> usize {
        match self {
            Values::Bytes(values) => values.len(),
            Values::Floats(pieces) => pieces.iter().map(|piece| piece.len() / 4).sum(),
            Values::Ints(values) => values.len(),
            Values::Empty => 0,
        }
    }
}

fn for_each_field<'a>(message: &'a [u8], mut visit: impl FnMut(u64, Field<'a>) -> Result<()>) -> Result<()> {
    Fields::new(message).try_for_each(|field| {
        let (_, number, field) = field.map_err(|cause| Error::in_source(format!("tf.train.Example: {cause}")))?;
        visit(number, field)
    })
}

fn unexpected(what: &str) -> Error {
    Error::in_source(format!(
        "tf.train.Example: {what} has an unexpected type; the record may contain a different message"
    ))
}

fn for_each_feature<'a>(record: &'a [u8], mut visit: impl FnMut(&'a str, Values<'a>) -> Result<()>) -> Result<()> {
    for_each_field(record, |number, field| {
        let (1, Field::Bytes(features)) = (number, field) else { return Err(unexpected("a field")) };
        for_each_field(features, |number, field| {
            let (1, Field::Bytes(entry)) = (number, field) else { return Err(unexpected("a feature")) };
            let (mut name, mut feature) = ("", &[][..]);
            for_each_field(entry, |number, field| {
                match (number, field) {
                    (1, Field::Bytes(key)) => {
                        let text = std::str::from_utf8(key);
                        name =
                            text.map_err(|_| Error::in_source("tf.train.Example: the name of a feature is not UTF-8"))?;
                    }
                    (2, Field::Bytes(value)) => feature = value,
                    _ => return Err(unexpected("an entry")),
                }
                Ok(())
            })?;
            visit(name, parse_values(name, feature)?)
        })
    })
}

fn parse_values<'a>(name: &str, feature: &'a [u8]) -> Result<Values<'a>> {
    let mut values = Values::Empty;
    let error = || unexpected(&format!("feature {name:?}"));
    for_each_field(feature, |kind, field| {
        let Field::Bytes(list) = field else { return Err(error()) };
        values = match kind {
            1 => Values::Bytes(Vec::new()),
            2 => Values::Floats(Vec::new()),
            3 => Values::Ints(Vec::new()),
            _ => return Err(error()),
        };
        for_each_field(list, |number, value| {
            match (number, &mut values, value) {
                (1, Values::Bytes(values), Field::Bytes(bytes)) => values.push(bytes),
                (1, Values::Floats(values), Field::Bytes(packed)) if packed.len() % 4 == 0 => values.push(packed),
                (1, Values::Floats(values), Field::Fixed32(float)) => values.push(float),
                (1, Values::Ints(values), Field::Varint(int)) => values.push(int as i64),
                (1, Values::Ints(values), Field::Bytes(packed)) => {
                    let mut offset = 0;
                    while offset < packed.len() {
                        values.push(varint(packed, &mut offset).ok_or_else(error)? as i64);
                    }
                }
                _ => return Err(error()),
            }
            Ok(())
        })
    })?;
    Ok(values)
}

/// Adds the names of the features that have several values in `record` to `list_features`.
pub(super) fn find_lists(record: &[u8], list_features: &mut BTreeSet<String>) -> Result<()> {
    for_each_feature(record, |name, values| {
        if values.len() > 1 && !list_features.contains(name) {
            list_features.insert(name.to_owned());
        }
        Ok(())
    })
}

/// Converts each feature of `record` to a cell. Features in `list_features` become arrays or lists
/// even if they have a single value. Values that cannot be borrowed from the record are appended to
/// `buffer`. Fails if a feature that is not in `list_features` has several values.
pub(super) fn read_row<'a>(
    record: &'a [u8],
    list_features: &BTreeSet<String>,
    buffer: &mut Vec<u8>,
) -> Result<Vec<NamedCell<'a>>> {
    let mut row = Vec::new();
    for_each_feature(record, |name, values| {
        let is_list = list_features.contains(name);
        let count = values.len();
        if count > 1 && !is_list {
            return Err(Error::in_source(format!(
                "{name:?} has {count} values: expected at most one, as in the records that determine the columns"
            )));
        }
        let sides = [count];
        let numbers = |element, data| ColumnValue::array(element, if is_list { &sides[..] } else { &[] }, data);
        let start = buffer.len();
        let content = match values {
            Values::Empty => ColumnValue::Null,
            _ if count == 0 && !is_list => ColumnValue::Null,
            Values::Bytes(values) if is_list => {
                let texts: std::result::Result<Vec<&str>, _> =
                    values.iter().map(|value| std::str::from_utf8(value)).collect();
                let texts = texts.map_err(|_| {
                    Error::in_source(format!("{name:?} is a list of bytes: expected UTF-8 text in all of its items"))
                })?;
                serde_json::to_writer(&mut *buffer, &texts).expect("writing to a Vec succeeds");
                ColumnValue::Json(RowBytes::page_tail(start, buffer))
            }
            Values::Bytes(values) => ColumnValue::Bytes(RowBytes::Borrowed(values[0])),
            Values::Floats(pieces) => {
                let data = match pieces[..] {
                    [piece] if cfg!(target_endian = "little") => RowBytes::Borrowed(piece),
                    _ => {
                        let floats = pieces.iter().flat_map(|piece| piece.as_chunks::<4>().0);
                        buffer.extend(floats.flat_map(|float| f32::from_le_bytes(*float).to_ne_bytes()));
                        RowBytes::page_tail(start, buffer)
                    }
                };
                numbers(Element::F32, data)
            }
            Values::Ints(values) => {
                buffer.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
                numbers(Element::I64, RowBytes::page_tail(start, buffer))
            }
        };
        row.push(NamedCell { name: Cow::Borrowed(name), content });
        Ok(())
    })?;
    Ok(row)
}
