//! Parses Caffe's `Datum` messages (see `caffe.proto`).

use crate::error::{Error, Result};
use crate::format;
use crate::model::{Numbers, Sample};
use crate::storage::RowBytes;
use crate::values::pixels::{self, Channels, Colors};
use crate::values::protobuf::{Field, Fields};

#[derive(Debug, Default, PartialEq)]
pub(super) struct Datum<'a> {
    channels: usize,
    height: usize,
    width: usize,
    data: Option<&'a [u8]>,
    label: Option<i64>,
    /// Little-endian floats. Each slice contains one element or a packed run of elements.
    floats: Vec<&'a [u8]>,
    is_encoded: bool,
}

impl<'a> Datum<'a> {
    /// Parses a message. Fails if a field is not part of `Datum` or has an invalid value, or if the
    /// message contains neither data nor floats.
    pub(super) fn read(value: &'a [u8]) -> Result<Self> {
        let mut datum = Datum::default();
        let side = |number: u64| usize::try_from(number).ok().filter(|side| *side <= 1 << 31);
        for field in Fields::new(value) {
            let (offset, number, field) = field.map_err(|cause| Error::in_source(format!("Caffe datum: {cause}")))?;
            let error = || Error::in_source(format!("Caffe datum: field {number} at byte {offset} is invalid"));
            match (number, field) {
                (1, Field::Varint(number)) => datum.channels = side(number).ok_or_else(error)?,
                (2, Field::Varint(number)) => datum.height = side(number).ok_or_else(error)?,
                (3, Field::Varint(number)) => datum.width = side(number).ok_or_else(error)?,
                (4, Field::Bytes(bytes)) => datum.data = Some(bytes),
                // A negative `int32` is sign-extended to 64 bits and encoded in ten bytes.
                (5, Field::Varint(number)) => datum.label = Some(number as i64),
                (6, Field::Bytes(bytes)) if bytes.len() % 4 == 0 => datum.floats.push(bytes),
                (6, Field::Fixed32(bytes)) => datum.floats.push(bytes),
                (7, Field::Varint(number)) => datum.is_encoded = number != 0,
                _ => return Err(error()),
            }
        }
        if datum.data.is_none() && datum.floats.is_empty() {
            return Err(Error::in_source("Caffe datum contains no data"));
        }
        Ok(datum)
    }

    /// Converts the message to a sample. Raw pixels and floats are appended to `buffer`. If
    /// `colors` is `None`, raw pixels with 3 channels are an error.
    pub(super) fn sample(
        self,
        key: RowBytes<'a>,
        colors: Option<Colors>,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Sample<'a>> {
        let shape = [self.channels, self.height, self.width];
        let claimed = shape.iter().try_fold(1_usize, |product, &side| product.checked_mul(side));
        let start = buffer.len();
        let raw_pixels = self.data.filter(|data| !self.is_encoded && claimed == Some(data.len()) && !data.is_empty());
        if let Some(data) = raw_pixels {
            let colors = match (self.channels, colors) {
                (1, _) => Colors::Rgb,
                (3, Some(colors)) => colors,
                (3, None) => {
                    return Err(Error::in_source(
                        "raw pixels of 3 channels may be RGB or BGR: call Lmdb::rgb or Lmdb::bgr \
                         (Caffe's convert_imageset writes BGR)",
                    ));
                }
                (channels, _) => {
                    return Err(Error::in_source(format!("raw pixels of {channels} channels: expected 1 or 3")));
                }
            };
            pixels::append(buffer, data, &shape, Channels::First, colors)?;
        } else if self.data.is_none() || self.data == Some(b"") {
            self.floats.iter().for_each(|floats| {
                buffer.extend(
                    floats.as_chunks::<4>().0.iter().flat_map(|float| f32::from_le_bytes(*float).to_ne_bytes()),
                );
            });
        }
        let buffer: &'a [u8] = buffer;
        let key = std::str::from_utf8(key.resolve(buffer)).map_err(|_| Error::in_source("the key is not UTF-8"))?;
        let mut sample = Sample::new(key);
        let converted = &buffer[start..];
        match self.data.filter(|data| !data.is_empty()) {
            Some(_) if raw_pixels.is_some() => sample.push(format::NPY.field, converted)?,
            Some(data) => match format::detect(data) {
                Some(format) => sample.push(format.field, data)?,
                None if self.is_encoded => sample.push("img", data)?,
                None => {
                    let actual = data.len();
                    return Err(Error::in_source(format!(
                        "Caffe datum: {actual} bytes of data do not match the shape {shape:?}"
                    )));
                }
            },
            None => {
                let numbers = Numbers::from_bytes::<f32>(converted, &shape);
                let actual = converted.len() / 4;
                sample.push(
                    "data.npy",
                    numbers.ok_or_else(|| {
                        Error::in_source(format!("Caffe datum: {actual} floats do not match the shape {shape:?}"))
                    })?,
                )?;
            }
        }
        Ok(match self.label {
            Some(label) => sample.with_label(label),
            None => sample,
        })
    }
}
