//! Builds the fields of an annotated image, under the same names for COCO, YOLO and Pascal VOC.
//!
//! | field | content |
//! |---|---|
//! | `jpg`, `png`, ... | the image |
//! | `boxes.npy` | left, upper, right and lower edge of each box: f32 of shape (n, 4) |
//! | `boxes.class.npy` | class index of each box: i64 of shape (n,) |
//! | `boxes.crowd.npy`, `boxes.difficult.npy` | 1 or 0 for each box: u8 of shape (n,) |
//! | `boxes.area.npy` | area of each object in pixels, as stored in the dataset: f32 of shape (n,) |
//! | `boxes.masks.json` | segmentation of each box in COCO format, or `null` if there is none |
//! | `boxes.points.npy` | x, y, and 0 (unlabeled), 1 (hidden) or 2 (visible) per keypoint: f32 of shape (n, K, 3) |
//! | `boxes.image_size.txt` | width and height of the annotated image in pixels, if the dataset stores them |
//! | `boxes.units.txt` | `relative` if coordinates are fractions of the image size. Without this field, they are pixels |
//! | `mask.png` | class of each pixel |
//! | `mask.first_class.txt` | pixel value of class 0 in the mask. Smaller values, and 255, are not classes |
//! | `image_id.txt` | ID of the image, if it differs from the file name |
//!
//! Arrays and polygons are typed [values](Value). `pack` stores each of them in the encoding that
//! the extension of the field's name states.

use std::sync::LazyLock;

use arrayvec::ArrayVec;

use crate::error::{Error, Result};
use crate::format::{self, Format};
use crate::machine::file::{self, MAX_FILE, is_below};
use crate::model::sample::{MAX_FIELDS, MessageHints};
use crate::model::value::{Lists, Number, Numbers, append_lists};
use crate::model::{Sample, Value};

/// Collects the fields of a sample. Content that is not in memory yet is appended to the worker's
/// scratch buffer.
pub(crate) struct FieldBuffer<'s> {
    bytes: &'s mut Vec<u8>,
    fields: ArrayVec<(&'static str, FieldContent<'s>), MAX_FIELDS>,
}

/// The content of a field. A field in the scratch buffer ends where the next one starts.
enum FieldContent<'s> {
    Borrowed(Value<'s>),
    Bytes { start: usize },
    Numbers { start: usize, shape: ArrayVec<usize, 3>, from_bytes: FromBytes<'s> },
    Lists { start: usize, count: usize },
}

type FromBytes<'s> = fn(&'s [u8], &[usize]) -> Option<Numbers<'s>>;

impl FieldContent<'_> {
    fn start(&self) -> Option<usize> {
        match self {
            FieldContent::Borrowed(_) => None,
            FieldContent::Bytes { start } | FieldContent::Numbers { start, .. } | FieldContent::Lists { start, .. } => {
                Some(*start)
            }
        }
    }
}

impl<'s> FieldBuffer<'s> {
    pub(crate) fn new(scratch: &'s mut Vec<u8>) -> Self {
        scratch.clear();
        FieldBuffer { bytes: scratch, fields: ArrayVec::new() }
    }

    /// Adds a field, and returns the buffer to which the caller must append the field's content.
    pub(crate) fn begin_field(&mut self, name: &'static str) -> &mut Vec<u8> {
        self.fields.push((name, FieldContent::Bytes { start: self.bytes.len() }));
        self.bytes
    }

    pub(crate) fn push_borrowed(&mut self, name: &'static str, value: impl Into<Value<'s>>) {
        self.fields.push((name, FieldContent::Borrowed(value.into())));
    }

    /// Adds an array. The number of elements in `numbers` must match `shape`.
    pub(crate) fn push_array<T: Number>(
        &mut self,
        name: &'static str,
        shape: &[usize],
        numbers: impl IntoIterator<Item = T>,
    ) {
        let (start, shape) = (self.bytes.len(), shape.iter().copied().collect());
        self.fields.push((name, FieldContent::Numbers { start, shape, from_bytes: Numbers::from_bytes::<T> }));
        numbers.into_iter().for_each(|number| self.bytes.extend_from_slice(bytemuck::bytes_of(&number)));
    }

    /// Adds lists of numbers. `ends` contains the end offset of each list in `numbers`.
    pub(crate) fn push_lists(&mut self, name: &'static str, ends: &[usize], numbers: &[f64]) {
        self.fields.push((name, FieldContent::Lists { start: self.bytes.len(), count: ends.len() }));
        append_lists(self.bytes, ends, numbers);
    }

    pub(crate) fn push_image_size(&mut self, size: Option<(u32, u32)>) {
        if let Some((width, height)) = size {
            self.push_array("boxes.image_size.txt", &[2], [width, height]);
        }
    }

    /// Adds the content of the regular file at the concatenation of `path`, up to 2 GiB.
    pub(crate) fn push_file(&mut self, name: &'static str, path: &[&str]) -> Result<()> {
        append_file(self.begin_field(name), path)
    }

    /// Builds the sample. Fails if a field was added twice.
    pub(crate) fn into_sample(self, key: &'s str) -> Result<Sample<'s>> {
        static HINTS: LazyLock<MessageHints> = LazyLock::new(|| MessageHints {
            label: Some(
                "no label: these images have one class per box, which field::Boxes reads; use \
                 drop_field(\"label\"), or unlabeled(true) to read -1"
                    .into(),
            ),
            ..MessageHints::default()
        });
        let (bytes, mut sample) = (&**self.bytes, Sample::new(key).with_hints(&HINTS));
        for (index, (name, content)) in self.fields.iter().enumerate() {
            let end = self.fields[index + 1..].iter().find_map(|(_, next)| next.start()).unwrap_or(bytes.len());
            let value = match content {
                FieldContent::Borrowed(value) => *value,
                FieldContent::Bytes { start } => Value::Bytes(&bytes[*start..end]),
                FieldContent::Numbers { start, shape, from_bytes } => {
                    from_bytes(&bytes[*start..end], shape).expect("the number of elements matches the shape").into()
                }
                FieldContent::Lists { start, count } => Lists::from_bytes(&bytes[*start..end], *count).into(),
            };
            sample.push(name, value)?;
        }
        Ok(sample)
    }
}

/// Appends the content of the regular file at the concatenation of `path`, up to 2 GiB.
pub(crate) fn append_file(bytes: &mut Vec<u8>, path: &[&str]) -> Result<()> {
    let failed = |e: std::io::Error| Error::io(path.concat(), &e);
    // Build the path at the end of `bytes`, to avoid a separate buffer.
    let start = bytes.len();
    path.iter().for_each(|piece| bytes.extend_from_slice(piece.as_bytes()));
    let opened = file::open(std::str::from_utf8(&bytes[start..]).expect("concatenated strings are valid UTF-8"));
    bytes.truncate(start);
    opened.and_then(|opened| file::append(opened, bytes, MAX_FILE)).map_err(failed)
}

/// Returns the sample key and the name of the image field for an image file called `name`.
pub(crate) fn key_and_field<'a>(name: &'a str, formats: &[Format]) -> (&'a str, &'static str) {
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = name[base..].rfind('.').map_or(name.len(), |dot| base + dot);
    let extension = name.get(dot + 1..).unwrap_or("");
    (&name[..dot], format::field_for_extension(extension, formats).unwrap_or("img"))
}

/// Rejects an image path in an annotation that is absolute or contains `..`.
pub(crate) fn check_below_folder(name: &str) -> Result<()> {
    if is_below(name) {
        return Ok(());
    }
    Err(Error::in_source(format!(
        "the image path {name:?} points outside the image folder; use a relative path without \"..\", because \
         annotations must not refer to other files"
    )))
}

/// Checks that a box lies within its image and that its edges are in order. Datasets round
/// coordinates, so an edge may lie outside the image by up to `pixel` or 1% of the width or height,
/// whichever is larger. All lengths are in the unit of the coordinates. `field::Boxes` uses the
/// same tolerance.
pub(crate) fn check_box([x1, y1, x2, y2]: [f64; 4], width: f64, height: f64, pixel: f64) -> Result<()> {
    for (axis, side, low, high, image_side) in [("x", "wide", x1, x2, width), ("y", "high", y1, y2, height)] {
        let rounding = pixel.max(image_side / 100.0);
        if !(low <= high && low >= -rounding && high <= image_side + rounding) {
            return Err(Error::in_source(format!(
                "{axis} ranges from {low} to {high}, but the image is {image_side} {side}"
            )));
        }
    }
    Ok(())
}
