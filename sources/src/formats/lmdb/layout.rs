//! The layouts of values in an LMDB database. A [`ValueFormat`] decodes the values of one layout,
//! and [`detect`] recognizes the layout of a value.

use super::datum::Datum;
use super::msgpack::{Reader, Value};
use super::pickled::is_pickle;
use crate::error::{Error, Result};
use crate::format;
use crate::model::Sample;

/// Converts a value in an LMDB database to a sample.
///
/// ```
/// use warpfeed_sources::{ValueFormat, Sample};
///
/// /// A little-endian label of four bytes, followed by the image.
/// struct LabelThenJpeg;
///
/// impl ValueFormat for LabelThenJpeg {
///     fn sample<'a>(&self, key: &'a str, value: &'a [u8]) -> warpfeed_sources::Result<Sample<'a>> {
///         let (label, jpeg) = value.split_first_chunk().ok_or_else(|| warpfeed_sources::Error::in_source("value is shorter than its label"))?;
///         Ok(Sample::new(key).with_field("jpg", jpeg)?.with_label(i32::from_le_bytes(*label).into()))
///     }
/// }
/// ```
pub trait ValueFormat: Send + Sync {
    /// Returns the sample in `value`. `key` is the key in the database, in hexadecimal if it is not
    /// UTF-8 or contains control characters.
    ///
    /// # Errors
    /// If the value does not have the expected layout. The source adds the key to the error.
    fn sample<'a>(&self, key: &'a str, value: &'a [u8]) -> Result<Sample<'a>>;
}

/// Reads samples that are MessagePack maps. The keys of a map are WebDataset field names. For
/// example, Python writes such a map with
/// `msgpack.packb({"__key__": "n014/x", "jpg": jpeg, "cls": 3})`.
///
/// - `cls` is the label: an integer, or decimal text. `__key__` is the key of the sample, which
///   defaults to the key in the database.
/// - All other entries with bytes or text become fields.
/// - Entries with values of a different type (numbers, booleans, lists, nested maps) are ignored.
#[derive(Debug, Clone, Copy, Default)]
pub struct MsgPack;

impl ValueFormat for MsgPack {
    fn sample<'a>(&self, key: &'a str, value: &'a [u8]) -> Result<Sample<'a>> {
        let mut reader = Reader::new(value);
        let Value::Map(pairs) = reader.next()? else {
            return Err(Error::in_source("value is not a MessagePack map"));
        };
        let mut sample = Sample::new(key);
        for _ in 0..pairs {
            let offset = reader.offset();
            let Value::Bytes(name) = reader.next()? else {
                return Err(Error::in_source(format!("messagepack: field name at byte {offset} is not text")));
            };
            let name = text(name, "field name", offset)?;
            let offset = reader.offset();
            match (name, reader.next()?) {
                ("__key__", Value::Bytes(key)) => sample = sample.with_key(text(key, "\"__key__\"", offset)?),
                ("cls", Value::Int(class)) => sample = sample.with_label(class),
                ("cls", Value::Bytes(label)) => sample.push("cls", label)?,
                ("cls", _) => {
                    return Err(Error::in_source(format!(
                        "field \"cls\" at byte {offset}: expected an integer or decimal text"
                    )));
                }
                // Python programs often use a file extension as the name (`JPEG`). Normalize it, so
                // that fields have the same names in every format.
                (name, Value::Bytes(bytes)) => sample.push(format::canonical_field(name), bytes)?,
                (_, value) => reader.skip(value)?,
            }
        }
        if !reader.is_at_end() {
            return Err(Error::in_source(format!(
                "messagepack: unexpected data after the map, which ends at byte {} of {}",
                reader.offset(),
                value.len()
            )));
        }
        Ok(sample)
    }
}

fn text<'a>(bytes: &'a [u8], what: &str, offset: usize) -> Result<&'a str> {
    std::str::from_utf8(bytes)
        .map_err(|_| Error::in_source(format!("messagepack: {what} at byte {offset} is not UTF-8")))
}

/// Parses the class names, which are stored as a MessagePack array of strings.
pub(super) fn classes(value: &[u8]) -> Result<Vec<String>> {
    let mut reader = Reader::new(value);
    let Value::Array(len) = reader.next()? else {
        return Err(Error::in_source("class names: expected a MessagePack array"));
    };
    let mut names = Vec::new();
    for _ in 0..len {
        let offset = reader.offset();
        match reader.next()? {
            Value::Bytes(name) => names.push(text(name, "class name", offset)?.to_owned()),
            _ => return Err(Error::in_source(format!("messagepack: class name at byte {offset} is not text"))),
        }
    }
    Ok(names)
}

/// Reads values that are encoded images. Samples have no label. Their only field is named after the
/// image format, which is detected from the first bytes. If the format is unknown, the field is
/// named `img`.
#[derive(Debug, Clone, Copy, Default)]
pub struct RawValues;

impl ValueFormat for RawValues {
    fn sample<'a>(&self, key: &'a str, value: &'a [u8]) -> Result<Sample<'a>> {
        Sample::new(key).with_field(format::detect(value).map_or("img", |format| format.field), value)
    }
}

pub(super) enum DetectedLayout {
    Custom(Box<dyn ValueFormat>),
    Pickled,
    Datum,
}

pub(super) fn detect(value: &[u8]) -> Result<DetectedLayout> {
    // Check for MessagePack after images and pickles: a PNG begins with the same byte as a
    // MessagePack map of nine pairs, and most pickles begin with the same byte as an empty map.
    if format::detect(value).is_some() {
        return Ok(DetectedLayout::Custom(Box::new(RawValues)));
    }
    if is_pickle(value) {
        return Ok(DetectedLayout::Pickled);
    }
    if let Ok(Value::Map(_)) = Reader::new(value).next() {
        return Ok(DetectedLayout::Custom(Box::new(MsgPack)));
    }
    if Datum::read(value).is_ok() {
        return Ok(DetectedLayout::Datum);
    }
    let first_bytes = &value[..value.len().min(8)];
    Err(Error::in_source(format!(
        "unrecognized value of {} bytes, which begins with {first_bytes:02x?}: expected a messagepack map, an encoded image, \
         a pickle or a Caffe datum; use `Lmdb::with_layout` for other layouts",
        value.len()
    )))
}
