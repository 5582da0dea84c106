use super::datum::Datum;
use super::msgpack::{Reader, Value};
use super::pickled::is_pickle;
use crate::error::{Error, Result};
use crate::format;
use crate::model::Sample;

/// Converts a value of an LMDB database to a sample.
///
/// ```
/// use warpfeed_sources::{ValueFormat, Sample};
///
/// /// A label of four bytes, little-endian, then the image.
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
    /// Returns the sample in `value`, stored under `key` (in hexadecimal if it is not text).
    ///
    /// # Errors
    /// If the value is not what the layout expects; the source adds the key.
    fn sample<'a>(&self, key: &'a str, value: &'a [u8]) -> Result<Sample<'a>>;
}

/// MessagePack maps with WebDataset's field names, as written by `msgpack.packb({"__key__":
/// "n014/x", "jpg": jpeg, "cls": 3})`.
///
/// - `cls`, an integer or decimal text, is the label. `__key__` is the sample's key; the default is
///   the database's key.
/// - Bytes and text are fields. Values of other types (floats, lists, nested maps) are skipped.
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
            let at = reader.at();
            let Value::Bytes(name) = reader.next()? else {
                return Err(Error::in_source(format!("messagepack: field name at byte {at} is not text")));
            };
            let name = text(name, "field name", at)?;
            let at = reader.at();
            match (name, reader.next()?) {
                ("__key__", Value::Bytes(key)) => sample = sample.with_key(text(key, "\"__key__\"", at)?),
                ("cls", Value::Int(class)) => sample = sample.with_label(class),
                ("cls", Value::Bytes(label)) => sample.push("cls", label)?,
                ("cls", _) => return Err(Error::in_source(format!("field \"cls\" at byte {at} is not an integer"))),
                // Python users name a field after the file. This gives the same names in every
                // source of the same data.
                (name, Value::Bytes(bytes)) => sample.push(format::field(name), bytes)?,
                (_, value) => reader.skip(value)?,
            }
        }
        if !reader.is_at_end() {
            return Err(Error::in_source(format!("messagepack: map ends at byte {} of {}", reader.at(), value.len())));
        }
        Ok(sample)
    }
}

fn text<'a>(bytes: &'a [u8], what: &str, at: usize) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|_| Error::in_source(format!("messagepack: {what} at byte {at} is not UTF-8")))
}

/// Names of the classes: a MessagePack array of texts.
pub(super) fn classes(value: &[u8]) -> Result<Vec<String>> {
    let mut reader = Reader::new(value);
    let Value::Array(len) = reader.next()? else {
        return Err(Error::in_source("class names are not a MessagePack array"));
    };
    let mut names = Vec::new();
    for _ in 0..len {
        let at = reader.at();
        match reader.next()? {
            Value::Bytes(name) => names.push(text(name, "class name", at)?.to_owned()),
            _ => return Err(Error::in_source(format!("messagepack: class name at byte {at} is not text"))),
        }
    }
    Ok(names)
}

/// Values that consist of the encoded image, without labels. The field is named after the format,
/// which is detected from the first bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct RawValues;

impl ValueFormat for RawValues {
    fn sample<'a>(&self, key: &'a str, value: &'a [u8]) -> Result<Sample<'a>> {
        Sample::new(key).with_field(format::of(value).map_or("img", |format| format.field), value)
    }
}

/// The layout of a database.
pub(super) enum Detected {
    Plain(Box<dyn ValueFormat>),
    Pickled,
    Datum,
}

/// The layout of a database whose first value is `value`.
pub(super) fn detect(value: &[u8]) -> Result<Detected> {
    // Images are tried first, because a PNG begins with the byte of a MessagePack map of nine
    // pairs. Pickles are tried next, because most begin with that of an empty map.
    if format::of(value).is_some() {
        return Ok(Detected::Plain(Box::new(RawValues)));
    }
    if is_pickle(value) {
        return Ok(Detected::Pickled);
    }
    if let Ok(Value::Map(_)) = Reader::new(value).next() {
        return Ok(Detected::Plain(Box::new(MsgPack)));
    }
    if Datum::read(value).is_ok() {
        return Ok(Detected::Datum);
    }
    let shown = &value[..value.len().min(8)];
    Err(Error::in_source(format!(
        "value of {} bytes is neither a messagepack map, an encoded image, a pickle nor a Caffe datum: it begins \
         {shown:02x?}; `Lmdb::with_layout` reads others",
        value.len()
    )))
}
