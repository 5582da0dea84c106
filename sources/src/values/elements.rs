//! [`Dtype`]: the element type of an array from a file of NumPy, PyTorch or a similar library.
//! Converts elements to a type that [`Numbers`](crate::Numbers) supports.

use crate::error::{Error, Result};
use crate::model::value::Element;

/// An element type in NumPy's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dtype {
    /// NumPy's letter for the type: `u`, `i`, `f`, `b`, ...
    pub(crate) kind: u8,
    /// Size of an element, in bytes.
    pub(crate) size: usize,
    pub(crate) big_endian: bool,
}

impl Dtype {
    pub(crate) const fn little(kind: u8, size: usize) -> Self {
        Dtype { kind, size, big_endian: false }
    }

    /// Returns the type after conversion. Booleans become `u8`, and `f2` becomes `f32`. For an
    /// unsupported type, the error suggests a supported one.
    pub(crate) fn element(self) -> Result<Element> {
        Ok(match (self.kind, self.size) {
            (b'u' | b'b', 1) => Element::U8,
            (b'u', 2) => Element::U16,
            (b'u', 4) => Element::U32,
            (b'u', 8) => Element::U64,
            (b'i', 1) => Element::I8,
            (b'i', 2) => Element::I16,
            (b'i', 4) => Element::I32,
            (b'i', 8) => Element::I64,
            (b'f', 2 | 4) => Element::F32,
            (b'f', 8) => Element::F64,
            (kind, size) => {
                let advice = match kind {
                    b'O' => "; an object array consists of pickled Python objects: save numbers instead",
                    b'U' | b'S' => "; save integers instead, such as numpy.unique(texts, return_inverse=True)[1]",
                    b'c' => "; save the real and the imaginary part separately",
                    b'M' | b'm' => "; save times as integers, with astype('i8')",
                    _ => "; convert them with astype",
                };
                let kind = char::from(kind);
                return Err(Error::in_source(format!(
                    "elements of type {kind:?} with {size} bytes; integers, booleans and floats are supported{advice}"
                )));
            }
        })
    }

    /// Returns whether elements already have the type of [`element`](Dtype::element), in native
    /// byte order.
    pub(crate) fn is_native(self) -> bool {
        let halves = (self.kind, self.size) == (b'f', 2);
        !halves && (self.size <= 1 || self.big_endian == cfg!(target_endian = "big"))
    }

    /// Appends the elements in `bytes` to `out`, converted to the type of
    /// [`element`](Dtype::element) in native byte order.
    pub(crate) fn convert(self, bytes: &[u8], out: &mut Vec<u8>) {
        out.reserve(bytes.len());
        let swapped = self.size > 1 && self.big_endian != cfg!(target_endian = "big");
        for element in bytes.chunks_exact(self.size.max(1)) {
            let mut native = [0; 8];
            let native = &mut native[..self.size];
            native.copy_from_slice(element);
            if swapped {
                native.reverse();
            }
            match (self.kind, &*native) {
                (b'f', &[a, b]) => out.extend(half::f16::from_ne_bytes([a, b]).to_f32().to_ne_bytes()),
                _ => out.extend_from_slice(native),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_and_half_precision_elements_are_exact() {
        let converted = |kind, size, big_endian, bytes: &[u8]| {
            let mut out = Vec::new();
            Dtype { kind, size, big_endian }.convert(bytes, &mut out);
            out
        };
        assert_eq!(converted(b'i', 4, true, &7_i32.to_be_bytes()), 7_i32.to_ne_bytes());
        assert_eq!(converted(b'f', 2, false, &half::f16::from_f32(1.5).to_le_bytes()), 1.5_f32.to_ne_bytes());
        assert_eq!(converted(b'f', 2, true, &half::f16::from_f32(-2.0).to_be_bytes()), (-2_f32).to_ne_bytes());
        assert_eq!(converted(b'b', 1, true, &[0, 1]), [0, 1]);
        assert!(Dtype::little(b'u', 1).is_native() && !Dtype::little(b'f', 2).is_native());
        let e = Dtype::little(b'O', 8).element().unwrap_err();
        assert!(e.cause().contains("pickled Python objects"), "{e}");
    }
}
