//! Parses the header of an `.npy` file ([NumPy's format 1.0 to
//! 3.0](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html)).

use arrayvec::ArrayVec;

use crate::error::{Error, Result};
use crate::model::value::Numbers;

/// Maximum number of axes of an array.
pub const MAX_AXES: usize = 8;

/// The length of each axis.
pub type Shape = ArrayVec<usize, MAX_AXES>;

/// The parsed header of an `.npy` file, and its data.
#[derive(Debug)]
pub struct Npy<'a> {
    /// Text of the header, for messages.
    text: &'a str,
    /// NumPy's letter for the element type: `u`, `i`, `f`, `b`, ..., or `?` if the header has no
    /// simple type.
    pub kind: u8,
    /// Number of bytes per element, or 0 if the header has no simple type.
    pub item_size: usize,
    /// Whether the elements are big-endian.
    pub big_endian: bool,
    /// Whether the array is in Fortran order, in which the first axis varies fastest. Also true if
    /// the header does not state the order.
    pub fortran_order: bool,
    /// Shape of the array, or `None` if the header contains no valid shape or more than
    /// [`MAX_AXES`] axes.
    pub shape: Option<Shape>,
    /// The data after the header.
    pub data: &'a [u8],
    /// Offset of `data` in the file.
    pub data_offset: usize,
}

impl<'a> Npy<'a> {
    /// Returns whether `bytes` starts with the signature of an `.npy` file.
    pub fn matches(bytes: &[u8]) -> bool {
        bytes.starts_with(b"\x93NUMPY")
    }

    /// Parses the header. Checks neither the signature nor the length of the data.
    ///
    /// # Errors
    /// If the header is truncated, has a version other than 1 to 3, or is not UTF-8.
    pub fn read(bytes: &'a [u8]) -> Result<Self> {
        let cut = || Error::decode(format!("npy header is truncated at byte {}", bytes.len()));
        let (version, length) = match bytes.get(6..12).ok_or_else(cut)? {
            [1, _, a, b, ..] => (10, usize::from(u16::from_le_bytes([*a, *b]))),
            [2 | 3, _, a, b, c, d] => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
            [major, ..] => {
                return Err(Error::decode(format!("npy format version {major} is not supported; expected 1 to 3")));
            }
            [] => return Err(cut()),
        };
        let start = version + length;
        let text = bytes.get(version..start).ok_or_else(|| {
            Error::decode(format!(
                "npy header claims to end at byte {start}, but the file ends at byte {}",
                bytes.len()
            ))
        })?;
        let text = std::str::from_utf8(text).map_err(|_| Error::decode("npy header is not UTF-8"))?;
        let (kind, item_size, big_endian) = parse_element(text).unwrap_or((b'?', 0, false));
        let fortran_order = find_value(text, "'fortran_order'").is_none_or(|value| !value.starts_with("False"));
        Ok(Npy {
            text,
            kind,
            item_size,
            big_endian,
            fortran_order,
            shape: parse_shape(text),
            data: &bytes[start..],
            data_offset: start,
        })
    }

    /// Describes numbers in memory like the content of a file.
    pub fn from_numbers(numbers: Numbers<'a>) -> Self {
        let (kind, item_size, data) = numbers.parts();
        let (big_endian, shape) = (cfg!(target_endian = "big"), Some(numbers.dims().collect()));
        Npy { text: "typed numbers", kind, item_size, big_endian, fortran_order: false, shape, data, data_offset: 0 }
    }

    /// Returns the first 120 characters of the header's text, for a message.
    pub fn header_for_message(&self) -> String {
        self.text.trim_end().chars().take(120).collect()
    }
}

fn find_value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    Some(text.split_once(key)?.1.trim_start().strip_prefix(':')?.trim_start())
}

/// Finds the element type in the header. Returns its letter, its size in bytes, and whether it is
/// big-endian. Returns `None` if the type is not a letter and a size, as in `'<f4'`.
fn parse_element(text: &str) -> Option<(u8, usize, bool)> {
    let descr = find_value(text, "'descr'")?.strip_prefix('\'')?.split_once('\'')?.0;
    let (order, plain) = match descr.as_bytes().first()? {
        order @ (b'<' | b'>' | b'|' | b'=') => (*order, &descr[1..]),
        _ => (b'<', descr),
    };
    let kind = *plain.as_bytes().first()?;
    // The unit follows the size of a time type, as in `<M8[ns]`.
    let size = plain.get(1..)?.split('[').next()?.parse().ok()?;
    // NumPy stores text as UCS-4, and the type states the number of characters.
    let size = if kind == b'U' { 4_usize.checked_mul(size)? } else { size };
    kind.is_ascii_alphabetic().then_some((kind, size, order == b'>'))
}

fn parse_shape(text: &str) -> Option<Shape> {
    let axes = find_value(text, "'shape'")?.strip_prefix('(')?.split_once(')')?.0;
    let axes = axes.trim().strip_suffix(',').unwrap_or(axes.trim());
    let mut shape = Shape::new();
    for axis in axes.split(',').map(str::trim).filter(|_| !axes.is_empty()) {
        shape.try_push(axis.parse().ok()?).ok()?;
    }
    Some(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes
    }

    #[test]
    fn the_header_contains_type_byte_order_and_shape() {
        for (descr, expected) in
            [("<f4", (b'f', 4, false)), (">i8", (b'i', 8, true)), ("|u1", (b'u', 1, false)), ("|b1", (b'b', 1, false))]
        {
            for (shape, axes) in [("()", &[][..]), ("(3,)", &[3]), ("(2, 0)", &[2, 0]), ("(1, 2, 3)", &[1, 2, 3])] {
                let bytes = file(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n"));
                let npy = Npy::read(&bytes).unwrap();
                assert_eq!((npy.kind, npy.item_size, npy.big_endian), expected);
                assert_eq!((npy.shape.as_deref(), npy.fortran_order, npy.data.len()), (Some(axes), false, 0));
            }
        }
    }

    #[test]
    fn an_unusual_header_has_no_shape_or_no_size() {
        for shape in ["(1, x)", "3", "(-1,)", "(1, 2, 3, 4, 5, 6, 7, 8, 9)", "(99999999999999999999999,)"] {
            let bytes = file(&format!("{{'descr': '<f4', 'fortran_order': True, 'shape': {shape}, }}"));
            let npy = Npy::read(&bytes).unwrap();
            assert!(npy.shape.is_none() && npy.fortran_order, "{shape}");
        }
        for descr in ["[('x', '<f4')]", "''", "'<'", "'é4'", "'<U'", "5"] {
            let bytes = file(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (), }}"));
            assert_eq!(Npy::read(&bytes).unwrap().item_size, 0, "{descr}");
        }
    }
}
