//! Decodes the values in MDS shards, which MosaicML's library encodes in
//! `streaming/base/format/mds/encodings.py`.

use crate::error::{Error, Result};
use crate::model::value::Element;
use crate::storage::RowBytes;
use crate::values::items::{decode_decimal, decode_pillow, f16_to_f32};
use crate::values::record::{ColumnType, ColumnValue};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Encoding {
    Image,
    /// A Pillow image: its size, mode and pixels.
    Pil,
    Bytes,
    Text,
    Json,
    /// An integer as decimal text.
    Integer,
    /// A floating-point number or a Python `Decimal`, as decimal text.
    Decimal,
    Number(Element),
    Half,
    Array(ArraySpec),
}

/// The array properties that an encoding's name specifies. If a property is `None`, each array
/// specifies its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ArraySpec {
    dtype: Option<Dtype>,
    shape: Option<Vec<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dtype {
    Half,
    Element(Element),
}

/// The supported types. Each entry contains NumPy's name of the type, the number that identifies
/// the type in an array if the encoding does not, and the type.
const DTYPES: [(&str, u8, Dtype); 11] = [
    ("uint8", 8, Dtype::Element(Element::U8)),
    ("int8", 9, Dtype::Element(Element::I8)),
    ("uint16", 16, Dtype::Element(Element::U16)),
    ("int16", 17, Dtype::Element(Element::I16)),
    ("float16", 18, Dtype::Half),
    ("uint32", 32, Dtype::Element(Element::U32)),
    ("int32", 33, Dtype::Element(Element::I32)),
    ("float32", 34, Dtype::Element(Element::F32)),
    ("uint64", 64, Dtype::Element(Element::U64)),
    ("int64", 65, Dtype::Element(Element::I64)),
    ("float64", 66, Dtype::Element(Element::F64)),
];

impl Encoding {
    pub(super) fn from_name(name: &str) -> Result<Self> {
        let unsupported = |reason: &str| {
            let advice =
                "select other columns with TableOptions::columns, or write the column with a different encoding";
            Err(Error::in_source(format!("encoding {name:?} {reason}: {advice}")))
        };
        let (base, details) = name.split_once(':').map_or((name, None), |(base, details)| (base, Some(details)));
        Ok(match base {
            "ndarray" => Encoding::Array(ArraySpec::parse(details.unwrap_or("")).ok_or_else(|| {
                Error::in_source(format!("encoding {name:?}: expected ndarray, ndarray:dtype or ndarray:dtype:shape"))
            })?),
            _ if details.is_some() => return unsupported("is unknown"),
            "jpeg" | "jpegfile" | "png" => Encoding::Image,
            "pil" => Encoding::Pil,
            "bytes" => Encoding::Bytes,
            "str" => Encoding::Text,
            "json" => Encoding::Json,
            "str_int" => Encoding::Integer,
            "str_float" | "str_decimal" => Encoding::Decimal,
            "int" => Encoding::Number(Element::I64),
            "pkl" => return unsupported("can execute arbitrary code and is not supported"),
            "jpeg_array" | "jpegarray" | "list[pil]" | "list[jpeg]" | "list[png]" => {
                return unsupported("stores several images in one value and is not supported");
            }
            _ => match DTYPES.iter().find(|dtype| dtype.0 == base) {
                Some((_, _, Dtype::Element(element))) => Encoding::Number(*element),
                Some((_, _, Dtype::Half)) => Encoding::Half,
                None => return unsupported("is unknown"),
            },
        })
    }

    pub(super) fn column_type(&self, first: &mut dyn FnMut() -> Result<Vec<u8>>) -> Result<ColumnType> {
        Ok(match self {
            Encoding::Image | Encoding::Pil => ColumnType::Images,
            Encoding::Bytes => ColumnType::from_bytes(&first()?),
            Encoding::Text => ColumnType::Text,
            Encoding::Json => ColumnType::Json,
            Encoding::Number(Element::F32 | Element::F64) | Encoding::Decimal => ColumnType::Numbers,
            Encoding::Number(_) | Encoding::Integer => ColumnType::Integers,
            Encoding::Half | Encoding::Array(_) => ColumnType::Numbers,
        })
    }

    /// Returns the size of each value in bytes, or `None` if the size varies or overflows.
    pub(super) fn size(&self) -> Option<usize> {
        match self {
            Encoding::Number(element) => Some(element.size()),
            Encoding::Half => Some(2),
            Encoding::Array(ArraySpec { dtype: Some(dtype), shape: Some(shape) }) => {
                shape.iter().try_fold(dtype.size(), |size, side| size.checked_mul(*side))
            }
            _ => None,
        }
    }

    pub(super) fn decode<'a>(&self, bytes: &'a [u8], buffer: &mut Vec<u8>) -> Result<ColumnValue<'a>> {
        let row_bytes = RowBytes::Borrowed(bytes);
        Ok(match self {
            Encoding::Image | Encoding::Bytes => ColumnValue::Bytes(row_bytes),
            Encoding::Pil => decode_pillow(bytes, buffer)?,
            Encoding::Text => ColumnValue::Text(row_bytes),
            Encoding::Json => ColumnValue::Json(row_bytes),
            Encoding::Integer => decode_decimal(bytes, true, buffer)?,
            Encoding::Decimal => decode_decimal(bytes, false, buffer)?,
            Encoding::Number(element) => ColumnValue::number(*element, row_bytes),
            Encoding::Half => f16_to_f32(bytes, &[], buffer),
            Encoding::Array(array) => array.decode(bytes, buffer)?,
        })
    }
}

impl Dtype {
    fn size(self) -> usize {
        match self {
            Dtype::Half => 2,
            Dtype::Element(element) => element.size(),
        }
    }
}

impl ArraySpec {
    /// Parses the part of an encoding's name after `ndarray:`, such as `uint8:3,4`. Returns `None`
    /// if it is invalid.
    fn parse(details: &str) -> Option<Self> {
        if details.is_empty() {
            return Some(ArraySpec::default());
        }
        let (dtype, shape) = details.split_once(':').map_or((details, None), |(dtype, shape)| (dtype, Some(shape)));
        let dtype = DTYPES.iter().find(|entry| entry.0 == dtype)?.2;
        let shape =
            shape.map(|shape| shape.split(',').map(|side| side.trim().parse().ok()).collect::<Option<Vec<_>>>());
        let shape = match shape {
            Some(shape) => Some(shape?),
            None => None,
        };
        Some(ArraySpec { dtype: Some(dtype), shape })
    }

    /// Decodes an array. If the encoding's name does not specify the type or the shape, the array
    /// begins with the missing properties, followed by the elements.
    fn decode<'a>(&self, bytes: &'a [u8], buffer: &mut Vec<u8>) -> Result<ColumnValue<'a>> {
        let mut rest = bytes;
        let mut take_bytes = |count: usize| {
            let truncated =
                || Error::in_source(format!("an array is truncated after {} bytes: the shard is damaged", bytes.len()));
            let (content, after) = rest.split_at_checked(count).ok_or_else(truncated)?;
            rest = after;
            Ok::<_, Error>(content)
        };
        let dtype = match self.dtype {
            Some(dtype) => dtype,
            None => {
                let number = take_bytes(1)?[0];
                let dtype_entry = DTYPES.iter().find(|dtype| dtype.1 == number);
                dtype_entry.ok_or_else(|| Error::in_source(format!("an array has the unknown type number {number}")))?.2
            }
        };
        let sides_buffer;
        let shape: &[usize] = match &self.shape {
            Some(shape) => shape,
            None => {
                let byte = usize::from(take_bytes(1)?[0]);
                let (axes, width) = (byte >> 2, 1 << (byte & 3));
                let mut sides = [0; 3];
                for axis in 0..axes {
                    let mut side = [0; 8];
                    side[..width].copy_from_slice(take_bytes(width)?);
                    let len = sides
                        .get_mut(axis)
                        .ok_or_else(|| Error::in_source(format!("an array has {axes} axes: expected at most 3")))?;
                    *len = usize::try_from(u64::from_le_bytes(side)).unwrap_or(usize::MAX);
                }
                sides_buffer = sides;
                &sides_buffer[..axes]
            }
        };
        let available = rest.len();
        let needed = shape.iter().try_fold(dtype.size(), |size, side| size.checked_mul(*side));
        if needed != Some(available) {
            return Err(Error::in_source(format!(
                "an array of shape {shape:?} has {available} bytes of data, which does not match the shape: the shard \
                 is damaged"
            )));
        }
        Ok(match dtype {
            Dtype::Half => f16_to_f32(rest, shape, buffer),
            Dtype::Element(element) => ColumnValue::array(element, shape, RowBytes::Borrowed(rest)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_encodings_are_rejected_by_name() {
        assert_eq!(Encoding::from_name("int").unwrap(), Encoding::Number(Element::I64));
        assert_eq!(Encoding::from_name("float16").unwrap().size(), Some(2));
        assert_eq!(Encoding::from_name("ndarray:int16:2,3").unwrap().size(), Some(12));
        assert_eq!(Encoding::from_name("ndarray:int16").unwrap().size(), None);
        assert_eq!(Encoding::from_name("ndarray").unwrap(), Encoding::Array(ArraySpec::default()));
        for (name, reason) in [
            ("pkl", "can execute arbitrary code"),
            ("list[jpeg]", "several images"),
            ("jpeg_array", "several images"),
            ("jpeg:90", "is unknown"),
            ("complex64", "is unknown"),
            ("ndarray:complex64", "expected ndarray, ndarray:dtype"),
            ("ndarray:int8:2,x", "expected ndarray, ndarray:dtype"),
            ("ndarray:int8:99999999999999999999", "expected ndarray, ndarray:dtype"),
        ] {
            let e = Encoding::from_name(name).unwrap_err();
            assert!(e.cause().contains(reason) && e.cause().contains(name), "{e}");
        }
    }

    #[test]
    fn arrays_contain_type_and_shape_if_the_encoding_does_not() {
        let decode = |encoding: &str, bytes: &[u8]| {
            let mut buffer = Vec::new();
            let content = Encoding::from_name(encoding)?.decode(bytes, &mut buffer)?;
            Ok::<_, Error>(format!("{:?}", content.cell(&buffer)?))
        };
        let expected = decode("ndarray:uint8:2,1", &[7, 9]).unwrap();
        assert_eq!(decode("ndarray:uint8", &[8, 2, 1, 7, 9]).unwrap(), expected);
        assert_eq!(decode("ndarray", &[8, 8, 2, 1, 7, 9]).unwrap(), expected);
        assert_eq!(decode("ndarray", &[8, 9, 2, 0, 1, 0, 7, 9]).unwrap(), expected);
        for damaged in
            [&[][..], &[8], &[8, 8], &[8, 8, 2], &[8, 8, 2, 1, 7], &[8, 8, 2, 1, 7, 9, 9], &[7, 8, 2, 1, 7, 9]]
        {
            assert!(decode("ndarray", damaged).is_err(), "{damaged:?}");
        }
        let e = decode("ndarray", &[8, 16, 1, 1, 1, 1, 7]).unwrap_err();
        assert!(e.cause().contains("4 axes: expected at most 3"), "{e}");
        // The half-precision floats 1.0 and -2.0.
        assert_eq!(decode("ndarray:float16:2", &[0, 0x3c, 0, 0xc0]).unwrap(), {
            let floats: Vec<u8> = [1.0_f32, -2.0].iter().flat_map(|f| f.to_le_bytes()).collect();
            decode("ndarray:float32:2", &floats).unwrap()
        });
    }

    #[test]
    fn numbers_in_text_are_parsed() {
        let integer = |text: &[u8]| {
            let mut buffer = Vec::new();
            let content = Encoding::Integer.decode(text, &mut buffer)?;
            Ok::<_, Error>(content.cell(&buffer)?.integer())
        };
        assert_eq!(integer(b"-12").unwrap(), Some(-12));
        assert!(integer(b"9223372036854775808").unwrap_err().cause().contains("a 64-bit integer"));
        assert!(integer(b"\xff").is_err() && integer(b"").is_err() && integer(b"1.5").is_err());
    }
}
