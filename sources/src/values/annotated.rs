//! Fields of an annotated image, with the same names for COCO, YOLO and Pascal VOC.
//!
//! | field | content |
//! |---|---|
//! | `jpg`, `png`, ... | the image |
//! | `boxes.npy` | (n, 4) f32: left, upper, right and lower edge |
//! | `boxes.class.npy` | (n) i64: the number of the class |
//! | `boxes.crowd.npy`, `boxes.difficult.npy` | (n) u8: 1 or 0 |
//! | `boxes.area.npy` | (n) f32: the area that the set declares, in pixels |
//! | `boxes.masks.json` | n segmentations as COCO writes them; `null` if a box has none |
//! | `boxes.points.npy` | (n, K, 3) f32: x, y, and 0 unlabeled, 1 hidden, 2 visible |
//! | `boxes.image_size.txt` | width and height in pixels of the annotated image, if the set declares them |
//! | `boxes.units.txt` | `relative`: coordinates are fractions of the image's width and height. Without it they are pixels |
//! | `mask.png` | a class for each pixel |
//! | `mask.first_class.txt` | value of class 0 in the mask. Smaller values and 255 are no classes |
//! | `image_id.txt` | the image's id, if it differs from the name |
//!
//! Arrays and outlines are typed [values](Value). `pack` writes them as files of these names.

use std::sync::LazyLock;

use arrayvec::ArrayVec;

use crate::error::{Error, Result};
use crate::format::{self, Format};
use crate::machine::file::{self, MAX_FILE, is_below};
use crate::model::sample::{Lacks, MAX_FIELDS};
use crate::model::value::{Lists, Number, Numbers, append_lists};
use crate::model::{Sample, Value};

/// Builds a sample from its fields. Fields that the source does not have in memory are appended to
/// the worker's scratch.
pub(crate) struct Parts<'s> {
    bytes: &'s mut Vec<u8>,
    fields: ArrayVec<(&'static str, Part<'s>), MAX_FIELDS>,
}

/// One field. Its bytes in the scratch end where the next field in the scratch starts.
enum Part<'s> {
    Kept(Value<'s>),
    Bytes { start: usize },
    Numbers { start: usize, shape: ArrayVec<usize, 3>, of_bytes: OfBytes<'s> },
    Lists { start: usize, count: usize },
}

/// Makes an array from its bytes and its shape.
type OfBytes<'s> = fn(&'s [u8], &[usize]) -> Option<Numbers<'s>>;

impl Part<'_> {
    /// Offset of its first byte, if it is in the scratch.
    fn start(&self) -> Option<usize> {
        match self {
            Part::Kept(_) => None,
            Part::Bytes { start } | Part::Numbers { start, .. } | Part::Lists { start, .. } => Some(*start),
        }
    }
}

impl<'s> Parts<'s> {
    pub(crate) fn new(scratch: &'s mut Vec<u8>) -> Self {
        scratch.clear();
        Parts { bytes: scratch, fields: ArrayVec::new() }
    }

    /// Begins the field `name`. The caller appends its content to the returned bytes.
    pub(crate) fn begin(&mut self, name: &'static str) -> &mut Vec<u8> {
        self.fields.push((name, Part::Bytes { start: self.bytes.len() }));
        self.bytes
    }

    /// Adds a value that is in memory.
    pub(crate) fn keep(&mut self, name: &'static str, value: impl Into<Value<'s>>) {
        self.fields.push((name, Part::Kept(value.into())));
    }

    /// Adds an array. `numbers` has as many elements as `shape` says.
    pub(crate) fn array<T: Number>(
        &mut self,
        name: &'static str,
        shape: &[usize],
        numbers: impl IntoIterator<Item = T>,
    ) {
        let (start, shape) = (self.bytes.len(), shape.iter().copied().collect());
        self.fields.push((name, Part::Numbers { start, shape, of_bytes: Numbers::of_bytes::<T> }));
        numbers.into_iter().for_each(|number| self.bytes.extend_from_slice(bytemuck::bytes_of(&number)));
    }

    /// Adds lists of numbers. `ends` holds the end of each list.
    pub(crate) fn lists(&mut self, name: &'static str, ends: &[usize], numbers: &[f64]) {
        self.fields.push((name, Part::Lists { start: self.bytes.len(), count: ends.len() }));
        append_lists(self.bytes, ends, numbers);
    }

    /// Adds the size of the image that was annotated, if it is known.
    pub(crate) fn image_size(&mut self, size: Option<(u32, u32)>) {
        if let Some((width, height)) = size {
            self.array("boxes.image_size.txt", &[2], [width, height]);
        }
    }

    /// Adds the content of a file. `path` is concatenated.
    ///
    /// # Errors
    /// If it cannot be read, is larger than 2 GiB, or is not a regular file.
    pub(crate) fn file(&mut self, name: &'static str, path: &[&str]) -> Result<()> {
        append(self.begin(name), path)
    }

    /// Returns the sample.
    ///
    /// # Errors
    /// If a field was added twice.
    pub(crate) fn sample(self, key: &'s str) -> Result<Sample<'s>> {
        static LACKS: LazyLock<Lacks> = LazyLock::new(|| {
            Lacks {
            image: None,
            label: Some(
                "no label: the classes of these images are those of their boxes, which the kind field::Boxes reads; use \
                 without(\"label\"), or unlabeled(true) to read -1"
                    .into(),
            ),
        }
        });
        let (bytes, mut sample) = (&**self.bytes, Sample::new(key).lacking(&LACKS));
        for (place, (name, part)) in self.fields.iter().enumerate() {
            let end = self.fields[place + 1..].iter().find_map(|(_, next)| next.start()).unwrap_or(bytes.len());
            let value = match part {
                Part::Kept(value) => *value,
                Part::Bytes { start } => Value::Bytes(&bytes[*start..end]),
                Part::Numbers { start, shape, of_bytes } => {
                    of_bytes(&bytes[*start..end], shape).expect("as many numbers as the shape has").into()
                }
                Part::Lists { start, count } => Lists::of_bytes(&bytes[*start..end], *count).into(),
            };
            sample.push(name, value)?;
        }
        Ok(sample)
    }
}

/// Appends the content of a file to `bytes`. `path` is concatenated.
///
/// # Errors
/// If it cannot be read, is larger than 2 GiB, or is not a regular file.
pub(crate) fn append(bytes: &mut Vec<u8>, path: &[&str]) -> Result<()> {
    let failed = |e: std::io::Error| Error::io(path.concat(), &e);
    // The path is built at the end of `bytes`, which saves a separate buffer.
    let start = bytes.len();
    path.iter().for_each(|piece| bytes.extend_from_slice(piece.as_bytes()));
    let opened = file::open(std::str::from_utf8(&bytes[start..]).expect("texts make a text"));
    bytes.truncate(start);
    opened.and_then(|opened| file::append(opened, bytes, MAX_FILE)).map_err(failed)
}

/// Splits the name of an image's file into the sample's key and the field of the image.
pub(crate) fn key_and_field<'a>(name: &'a str, formats: &[Format]) -> (&'a str, &'static str) {
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = name[base..].rfind('.').map_or(name.len(), |dot| base + dot);
    let extension = name.get(dot + 1..).unwrap_or("");
    (&name[..dot], format::field_of_file(extension, formats).unwrap_or("img"))
}

/// Checks that a file name in an annotation stays below the folder of images.
///
/// # Errors
/// If it is absolute or has a `..`.
pub(crate) fn below(name: &str) -> Result<()> {
    if is_below(name) {
        return Ok(());
    }
    Err(Error::in_source(format!(
        "the image's name {name:?} leads out of the folder of images; make it a path below the folder, because \
         files elsewhere are not read for an annotation"
    )))
}

/// Checks a box against the size of its image. Because datasets round coordinates, an edge may
/// exceed the image by `pixel` or a hundredth of the side, whichever is larger, as for
/// `Boxes`.
///
/// # Errors
/// If an edge is NaN or exceeds the image, or two edges are swapped. The message has both edges.
pub(crate) fn check_box([x1, y1, x2, y2]: [f64; 4], width: f64, height: f64, pixel: f64) -> Result<()> {
    for (axis, side, low, high, room) in [("x", "wide", x1, x2, width), ("y", "high", y1, y2, height)] {
        let rounding = pixel.max(room / 100.0);
        // Not `low > high`: NaN is neither.
        if !(low <= high && low >= -rounding && high <= room + rounding) {
            return Err(Error::in_source(format!("{axis} from {low} to {high}, the image is {room} {side}")));
        }
    }
    Ok(())
}
