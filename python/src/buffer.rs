//! Reads Python objects that provide a buffer, such as `bytes`, `memoryview` and NumPy arrays.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyTuple};

/// For error messages: images that datasets and requests accept.
pub(crate) const IMAGE: &str = "the bytes of an encoded image, a uint8 array of shape (height, width, 3)";
/// For error messages: images that datasets accept in addition to [`IMAGE`].
pub(crate) const DATASET_IMAGE: &str = ", a path, a uint8 tensor of shape (3, height, width), or a Pillow image";

pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}

pub(crate) enum Buffer<'py> {
    /// Raw bytes, such as an encoded file.
    Bytes(Bound<'py, PyBytes>),
    /// An array of numbers: the header of an `.npy` file, and the bytes of the numbers in C order.
    Array { header: Vec<u8>, data: Bound<'py, PyBytes>, axes: usize },
}

impl<'py> Buffer<'py> {
    /// Reads `value`. Returns `None` if it has no buffer or its elements have an unsupported type.
    /// One-dimensional `bytes`, `bytearray` and `memoryview` objects, and arrays of characters,
    /// count as encoded files. If `is_encoded` is true, so do all other one-dimensional arrays of
    /// bytes.
    pub(crate) fn from_object(value: &Bound<'py, PyAny>, is_encoded: bool) -> PyResult<Option<Self>> {
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Some(Buffer::Bytes(bytes.clone())));
        }
        let memoryview = value.py().import("builtins")?.getattr("memoryview")?;
        let Ok(view) = memoryview.call1((value,)) else { return Ok(None) };
        let format: String = view.getattr("format")?.extract()?;
        let shape: Bound<'_, PyTuple> = view.getattr("shape")?.extract()?;
        let data = || Ok::<_, PyErr>(view.call_method0("tobytes")?.cast_into::<PyBytes>()?);
        let is_bytes =
            is_encoded || format == "c" || value.is_instance_of::<PyByteArray>() || value.is_instance(&memoryview)?;
        if shape.len() == 1 && matches!(&*format, "B" | "b" | "c") && is_bytes {
            return Ok(Some(Buffer::Bytes(data()?)));
        }
        let Some(type_code) = type_code(&format) else { return Ok(None) };
        let item_bytes: usize = view.getattr("itemsize")?.extract()?;
        let descr = match (item_bytes, format.starts_with(['>', '!']) != cfg!(target_endian = "big")) {
            (1, _) => format!("|{type_code}1"),
            (_, false) => format!("<{type_code}{item_bytes}"),
            (_, true) => format!(">{type_code}{item_bytes}"),
        };
        Ok(Some(Buffer::Array { header: npy_header(&descr, &shape.to_string()), data: data()?, axes: shape.len() }))
    }
}

/// Converts a format of Python's `struct` module to the type code of `.npy` files.
fn type_code(format: &str) -> Option<char> {
    match format.trim_start_matches(['@', '=', '<', '>', '!']) {
        "?" => Some('b'),
        "b" | "h" | "i" | "l" | "q" => Some('i'),
        "B" | "H" | "I" | "L" | "Q" => Some('u'),
        "e" | "f" | "d" => Some('f'),
        _ => None,
    }
}

/// Returns the header of an `.npy` file, padded to a multiple of 64 bytes.
fn npy_header(descr: &str, shape: &str) -> Vec<u8> {
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let padding = 63 - (10 + text.len()) % 64;
    text.extend(std::iter::repeat_n(' ', padding));
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}
