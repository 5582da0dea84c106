//! Decodes the values in LitData chunks, which `litdata/streaming/serializers.py` encodes.

use crate::error::{Error, Result};
use crate::model::value::Element;
use crate::storage::RowBytes;
use crate::values::items::{bf16_to_f32, decode_decimal, decode_pillow, f16_to_f32};
use crate::values::record::{ColumnType, ColumnValue};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Serializer {
    Image,
    /// A Pillow image: its size, mode and pixels.
    Pil,
    Bytes,
    Text,
    Int(IntEncoding),
    Float,
    Bool,
    /// A tensor or array that is preceded by its type and shape.
    Array(Library),
    /// A one-dimensional tensor or array without a header. The index contains its element type.
    Flat(Dtype),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntEncoding {
    /// A number in eight bytes, in binary.
    Bits,
    /// A number in eight binary bytes, or decimal digits as in Lightning. Eight bytes that form a
    /// decimal number are read as text, because the same bytes as a binary number would be an
    /// implausible value above 3 * 10^18.
    BitsOrDigits,
}

/// The library that wrote an array. Libraries number the element types differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    Torch,
    Numpy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dtype {
    Element(Element),
    Half,
    Brain,
}

impl Library {
    /// Returns the element type with this number. Fails if the number is unknown, or if sample
    /// fields cannot have its type.
    fn dtype(self, number: u32) -> Result<Dtype> {
        let dtype = match (self, number) {
            (Library::Torch, 0 | 1) => Dtype::Element(Element::F32),
            (Library::Torch, 2 | 3) => Dtype::Element(Element::F64),
            (Library::Torch, 8 | 9) => Dtype::Half,
            (Library::Torch, 10) => Dtype::Brain,
            // 11 is `uint8`, and 19 is `bool`.
            (Library::Torch, 11 | 19) => Dtype::Element(Element::U8),
            (Library::Torch, 12) => Dtype::Element(Element::I8),
            (Library::Torch, 13 | 14) => Dtype::Element(Element::I16),
            (Library::Torch, 15 | 16) => Dtype::Element(Element::I32),
            (Library::Torch, 17 | 18) => Dtype::Element(Element::I64),
            (Library::Torch, 20) => Dtype::Element(Element::U16),
            (Library::Numpy, 0) => Dtype::Element(Element::I8),
            (Library::Numpy, 1) => Dtype::Element(Element::I16),
            (Library::Numpy, 2) => Dtype::Element(Element::I32),
            (Library::Numpy, 3) => Dtype::Element(Element::I64),
            (Library::Numpy, 4) => Dtype::Element(Element::U8),
            (Library::Numpy, 5) => Dtype::Element(Element::U16),
            (Library::Numpy, 6) => Dtype::Element(Element::U32),
            (Library::Numpy, 7) => Dtype::Element(Element::U64),
            (Library::Numpy, 8) => Dtype::Half,
            (Library::Numpy, 9) => Dtype::Element(Element::F32),
            (Library::Numpy, 10) => Dtype::Element(Element::F64),
            // Larger NumPy numbers have different meanings in different versions of NumPy.
            _ => {
                let library = if self == Library::Torch { "tensors" } else { "arrays" };
                return Err(Error::in_source(format!(
                    "{library} with type number {number} are not supported: store integers or floating-point numbers \
                     of a standard size"
                )));
            }
        };
        Ok(dtype)
    }
}

impl Dtype {
    fn size(self) -> usize {
        match self {
            Dtype::Element(element) => element.size(),
            Dtype::Half | Dtype::Brain => 2,
        }
    }

    fn array<'a>(self, bytes: &'a [u8], shape: &[usize], buffer: &mut Vec<u8>) -> Result<ColumnValue<'a>> {
        let expected_bytes = shape.iter().try_fold(self.size(), |size, side| size.checked_mul(*side));
        if expected_bytes != Some(bytes.len()) {
            let actual = bytes.len();
            return Err(Error::in_source(format!(
                "an array of shape {shape:?} has {actual} bytes of data, which does not match the shape: the chunk is \
                 damaged"
            )));
        }
        Ok(match self {
            Dtype::Element(element) => ColumnValue::array(element, shape, RowBytes::Borrowed(bytes)),
            Dtype::Half => f16_to_f32(bytes, shape, buffer),
            Dtype::Brain => bf16_to_f32(bytes, shape, buffer),
        })
    }
}

impl Serializer {
    /// In `name`, details may follow a colon, such as a type number. If `is_early` is true,
    /// integers may be stored as digits.
    pub(super) fn from_name(name: &str, is_early: bool) -> Result<Self> {
        let unsupported = |reason: &str| {
            let advice =
                "select other columns with TableOptions::columns, or write the value with a different serializer";
            Err(Error::in_source(format!("serializer {name:?} {reason}: {advice}")))
        };
        let (base, details) = name.split_once(':').unwrap_or((name, ""));
        let flat = |library: Library| {
            let number =
                details.parse().map_err(|_| Error::in_source(format!("serializer {name:?} has no type number")))?;
            library.dtype(number).map(Serializer::Flat)
        };
        Ok(match base {
            "jpeg" | "image" | "tiff" | "tifffile" => Serializer::Image,
            "pil" => Serializer::Pil,
            "bytes" | "file" | "video" | "audio" | "nifti" | "mesh" | "pdf" => Serializer::Bytes,
            "str" | "text" => Serializer::Text,
            "int" => Serializer::Int(if is_early { IntEncoding::BitsOrDigits } else { IntEncoding::Bits }),
            "float" => Serializer::Float,
            "bool" => Serializer::Bool,
            "tensor" => Serializer::Array(Library::Torch),
            "numpy" => Serializer::Array(Library::Numpy),
            "no_header_tensor" => flat(Library::Torch)?,
            "no_header_numpy" => flat(Library::Numpy)?,
            "pickle" | "graph" => return unsupported("can execute arbitrary code and is not supported"),
            "jpeg_array" => return unsupported("stores several images in one value and is not supported"),
            "json" => return unsupported("is not supported"),
            _ => return unsupported("is unknown"),
        })
    }

    pub(super) fn column_type(self, first: &mut dyn FnMut() -> Result<Vec<u8>>) -> Result<ColumnType> {
        Ok(match self {
            Serializer::Image | Serializer::Pil => ColumnType::Images,
            Serializer::Bytes => ColumnType::from_bytes(&first()?),
            Serializer::Text => ColumnType::Text,
            Serializer::Int(_) | Serializer::Bool => ColumnType::Integers,
            Serializer::Float | Serializer::Array(_) | Serializer::Flat(_) => ColumnType::Numbers,
        })
    }

    pub(super) fn decode<'a>(self, bytes: &'a [u8], buffer: &mut Vec<u8>) -> Result<ColumnValue<'a>> {
        let row_bytes = RowBytes::Borrowed(bytes);
        match self {
            Serializer::Image | Serializer::Bytes => Ok(ColumnValue::Bytes(row_bytes)),
            Serializer::Pil => decode_pillow(bytes, buffer),
            Serializer::Text => Ok(ColumnValue::Text(row_bytes)),
            Serializer::Int(IntEncoding::BitsOrDigits) if bytes.len() != 8 || is_integer(bytes) => {
                decode_decimal(bytes, true, buffer)
            }
            Serializer::Int(_) => Ok(ColumnValue::number(Element::I64, row_bytes)),
            Serializer::Float => Ok(ColumnValue::number(Element::F64, row_bytes)),
            Serializer::Bool => Ok(ColumnValue::number(Element::U8, row_bytes)),
            Serializer::Flat(dtype) => dtype.array(bytes, &[bytes.len() / dtype.size()], buffer),
            Serializer::Array(library) => {
                let truncated = || {
                    Error::in_source(format!("an array is truncated after {} bytes: the chunk is damaged", bytes.len()))
                };
                let big_endian = library == Library::Torch && is_big_endian(bytes.first_chunk().ok_or_else(truncated)?);
                let word = |word: &[u8; 4]| {
                    if big_endian { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) }
                };
                let mut words = bytes.as_chunks::<4>().0.iter().map(word);
                let (number, axes) = words.next().zip(words.next()).ok_or_else(truncated)?;
                let mut sides = [0; 3];
                let shape = sides
                    .get_mut(..axes as usize)
                    .ok_or_else(|| Error::in_source(format!("an array has {axes} axes: expected at most 3")))?;
                for side in &mut *shape {
                    *side = words.next().ok_or_else(truncated)? as usize;
                }
                library.dtype(number)?.array(&bytes[8 + 4 * shape.len()..], shape, buffer)
            }
        }
    }
}

fn is_integer(bytes: &[u8]) -> bool {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// Returns whether the header of a tensor is big-endian, as in LitData since 0.2.57. A header
/// starts with the type number and the number of axes. Both are small, so only one byte order
/// yields plausible values, unless all bytes are zero.
fn is_big_endian(header: &[u8; 8]) -> bool {
    let [.., a, b, c, d] = *header;
    let axes = u32::from_be_bytes([a, b, c, d]);
    axes < 1 << 16 && (axes > 0 || header[0] == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_serializers_are_rejected_with_advice() {
        for (name, reason) in [
            ("pickle", "can execute arbitrary code"),
            ("graph:pickle", "can execute arbitrary code"),
            ("jpeg_array", "several images"),
            ("mine", "is unknown: select other columns with TableOptions::columns"),
            ("no_header_numpy:13", "arrays with type number 13 are not supported"),
            ("no_header_tensor:4", "tensors with type number 4 are not supported"),
            ("no_header_tensor", "has no type number"),
        ] {
            let e = Serializer::from_name(name, false).unwrap_err();
            assert!(e.cause().contains(reason), "{name}: {e}");
        }
        assert_eq!(Serializer::from_name("file:png", false).unwrap(), Serializer::Bytes);
        assert_eq!(
            Serializer::from_name("no_header_tensor:18", false).unwrap(),
            Serializer::Flat(Dtype::Element(Element::I64))
        );
    }

    #[test]
    fn arrays_that_do_not_match_their_header_fail() {
        let decode = |name: &str, words: &[u32], data: &[u8]| {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            bytes.extend(data);
            let content = Serializer::from_name(name, false).unwrap().decode(&bytes, &mut Vec::new())?;
            content.cell(&[]).map(|cell| format!("{cell:?}"))
        };
        assert!(decode("tensor", &[11, 2, 2, 1], &[7, 9]).unwrap().contains("Numbers"));
        for (words, data, cause) in [
            (&[11][..], &[][..], "truncated"),
            (&[11, 2, 2], &[], "truncated"),
            (&[11, 4, 1, 1, 1, 1], &[1], "4 axes"),
            (&[11, u32::MAX], &[], "4294967295 axes"),
            (&[11, 2, 2, 2], &[1, 2, 3], "shape [2, 2] has 3 bytes"),
            (&[2, 3, u32::MAX, u32::MAX, u32::MAX], &[], "has 0 bytes"),
            (&[6, 0], &[0; 16], "type number 6"),
        ] {
            let e = decode("tensor", words, data).unwrap_err();
            assert!(e.cause().contains(cause), "{words:?}: {e}");
        }
        assert!(decode("no_header_tensor:2", &[1, 2], &[1]).unwrap_err().cause().contains("has 9 bytes"));
        assert!(decode("int", &[1], &[]).unwrap_err().cause().contains("4 bytes"));
    }

    #[test]
    fn early_versions_store_integers_as_text_or_binary() {
        let decode = |is_early: bool, bytes: &[u8]| {
            let mut buffer = Vec::new();
            let content = Serializer::from_name("int", is_early)?.decode(bytes, &mut buffer)?;
            Ok::<_, Error>(content.cell(&buffer)?.integer().unwrap())
        };
        let digits = i64::from_le_bytes(*b"20240131");
        assert_eq!(decode(false, b"20240131").unwrap(), digits);
        assert_eq!(decode(true, b"20240131").unwrap(), 20_240_131);
        assert_eq!(decode(true, b"-1234567").unwrap(), -1_234_567);
        for number in [0, 7, -1, i64::MAX, i64::MIN, 0x2d2d_2d2d_2d2d_2d2d] {
            assert_eq!(decode(true, &number.to_le_bytes()).unwrap(), number, "as LitData wrote it");
            let text = number.to_string();
            assert_eq!(decode(true, text.as_bytes()).unwrap(), number, "as Lightning wrote it");
        }
        assert!(decode(false, b"7").unwrap_err().cause().contains("of 1 byte does not match"));
        assert!(decode(true, b"seven").unwrap_err().cause().contains("is not a 64-bit integer"));
        assert!(decode(true, b"").is_err());
    }

    #[test]
    fn tensor_headers_are_read_in_either_byte_order() {
        let shapes: [&[u32]; 5] = [&[], &[2], &[1, 3], &[2, 1, 2], &[0, 70_000]];
        for (number, size) in [(0_u32, 4_usize), (11, 1), (18, 8)] {
            for shape in shapes {
                let elements = shape.iter().product::<u32>() as usize;
                let words = [&[number, shape.len() as u32], shape].concat();
                let decode = |word: fn(u32) -> [u8; 4]| {
                    let mut bytes: Vec<u8> = words.iter().flat_map(|&number| word(number)).collect();
                    bytes.extend((0..elements * size).map(|byte| byte as u8));
                    let content =
                        Serializer::from_name("tensor", false).unwrap().decode(&bytes, &mut Vec::new()).unwrap();
                    format!("{:?}", content.cell(&[]).unwrap())
                };
                assert_eq!(decode(u32::to_be_bytes), decode(u32::to_le_bytes), "{words:?}");
            }
        }
    }
}
