//! A sample without augmentation, as `Loader.sample` returns it, and decoding without a loader.

use std::cell::RefCell;
use std::sync::LazyLock;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use warpfeed::decode::{Codecs, Pixels, Rect, Size};
use warpfeed::source::Sample;

use crate::buffer::{Buffer, type_name};
use crate::error::Raised as _;

/// Maximum size in bytes of a pixel buffer that a thread keeps for the next image.
const MAX_REUSED_BYTES: usize = 64 << 20;

pub(crate) struct StoredSample {
    key: String,
    label: Option<i64>,
    image: Option<Image>,
    /// All fields except the image, in encoded form.
    fields: Vec<(String, Vec<u8>)>,
}

struct Image {
    name: String,
    size: Size,
    pixels: Vec<u8>,
}

pub(crate) fn stored_sample(sample: &Sample<'_>, codecs: &Codecs) -> warpfeed::Result<StoredSample> {
    let image_field = codecs.image(sample);
    let image = image_field.map(|(name, bytes)| {
        let mut opened = codecs.open(bytes)?;
        let mut pixels = Pixels::new();
        opened.decode(Rect::full(opened.size()), &mut pixels)?;
        Ok(Image { name: name.to_owned(), size: pixels.size(), pixels: pixels.data().to_vec() })
    });
    let is_other = |name: &str| image_field.is_none_or(|(image, _)| image != name);
    let others = sample.fields().iter().filter(|(name, _)| is_other(name));
    Ok(StoredSample {
        key: sample.key().to_owned(),
        label: sample.label()?,
        image: image.transpose()?,
        fields: others.map(|(name, value)| ((*name).to_owned(), value.encoded(name).into_owned())).collect(),
    })
}

impl<'py> IntoPyObject<'py> for StoredSample {
    type Target = pyo3::types::PyTuple;
    type Output = Bound<'py, Self::Target>;
    type Error = PyErr;

    /// Converts to `(key, label, image, fields)`, with the image as `(name, height, width, pixels)`
    /// or `None`.
    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        // A bytearray can be shared with a writable array, which torch requires.
        let image = self
            .image
            .map(|Image { name, size, pixels }| (name, size.height, size.width, PyByteArray::new(py, &pixels)));
        let fields: Vec<_> = self.fields.iter().map(|(name, bytes)| (name, PyBytes::new(py, bytes))).collect();
        (self.key, self.label, image, fields).into_pyobject(py)
    }
}

/// Decodes an image. Returns the height, the width and the pixels.
#[pyfunction]
pub(crate) fn decode_image<'py>(data: &Bound<'py, PyAny>) -> PyResult<(u32, u32, Bound<'py, PyByteArray>)> {
    static CODECS: LazyLock<Codecs> = LazyLock::new(Codecs::new);
    thread_local! {
        static REUSED: RefCell<Pixels> = RefCell::new(Pixels::new());
    }
    let py = data.py();
    let Some(Buffer::Bytes(encoded)) = Buffer::from_object(data, true)? else {
        return Err(PyTypeError::new_err(format!(
            "data is a value of type {}: expected the bytes of an encoded image",
            type_name(data)
        )));
    };
    let encoded = encoded.as_bytes();
    // Creating an exception may run other Python code, so the cell is not borrowed.
    let mut pixels = REUSED.take();
    py.detach(|| {
        let mut image = CODECS.open(encoded)?;
        image.decode(Rect::full(image.size()), &mut pixels)
    })
    .raised(py)?;
    let decoded = (pixels.size().height, pixels.size().width, PyByteArray::new(py, pixels.data()));
    if pixels.capacity() <= MAX_REUSED_BYTES {
        REUSED.set(pixels);
    }
    Ok(decoded)
}
