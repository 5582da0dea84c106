//! What an annotated picture's sample holds: the fields that COCO, YOLO and Pascal VOC give,
//! under the same names.
//!
//! | field | holds |
//! |---|---|
//! | `jpg`, `png`, ... | the picture |
//! | `boxes.npy` | (n, 4) f32: left, upper, right and lower edge |
//! | `boxes.class.npy` | (n) i64: the number of the class |
//! | `boxes.crowd.npy`, `boxes.difficult.npy` | (n) u8: 1 or 0 |
//! | `boxes.masks.json` | a list of n segmentations as COCO writes them, `null` where there is none |
//! | `boxes.points.npy` | (n, K, 3) f32: x, y, and 0 unlabelled, 1 hidden, 2 visible |
//! | `boxes.image_size.txt` | width and height in pixels of the picture that was annotated, if the set says |
//! | `boxes.units.txt` | `relative`: coordinates are parts of the picture's width and height. Without it they are pixels |
//! | `mask.png` | a class for each pixel |
//! | `image_id.txt` | the picture's id, where that is not its name |

use std::io::Write;
use std::path::{Component, Path};

use arrayvec::ArrayVec;

use super::Sample;
use super::file::{self, MAX_FILE};
use super::sample::MAX_FIELDS;
use crate::error::{Error, Result};
use crate::format::{self, Format};

/// The fields of a sample while they are put into a worker's scratch, one behind the other.
pub(super) struct Parts<'s> {
    bytes: &'s mut Vec<u8>,
    /// Names, and where the fields begin.
    fields: ArrayVec<(&'static str, usize), MAX_FIELDS>,
}

/// A number in an array.
pub(super) trait Number {
    /// NumPy's name of the type, little-endian.
    const DESCR: &'static str;

    fn put(self, to: &mut Vec<u8>);
}

impl Number for f32 {
    const DESCR: &'static str = "<f4";

    fn put(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.to_le_bytes());
    }
}

impl Number for i64 {
    const DESCR: &'static str = "<i8";

    fn put(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.to_le_bytes());
    }
}

impl Number for u8 {
    const DESCR: &'static str = "|u1";

    fn put(self, to: &mut Vec<u8>) {
        to.push(self);
    }
}

impl<'s> Parts<'s> {
    pub(super) fn new(scratch: &'s mut Vec<u8>) -> Self {
        scratch.clear();
        Parts { bytes: scratch, fields: ArrayVec::new() }
    }

    /// Begins the field `name`. What is written to the bytes is its content, up to the next one.
    pub(super) fn begin(&mut self, name: &'static str) -> &mut Vec<u8> {
        self.fields.push((name, self.bytes.len()));
        self.bytes
    }

    /// Adds an array in NumPy's format 1.0. `numbers` has as many as `shape` says.
    pub(super) fn array<T: Number>(
        &mut self,
        name: &'static str,
        shape: &[usize],
        numbers: impl IntoIterator<Item = T>,
    ) {
        let bytes = self.begin(name);
        let start = bytes.len();
        bytes.extend_from_slice(b"\x93NUMPY\x01\x00\x00\x00");
        let written = (|| {
            write!(bytes, "{{'descr': '{}', 'fortran_order': False, 'shape': (", T::DESCR)?;
            shape.iter().try_for_each(|side| write!(bytes, "{side}, "))?;
            write!(bytes, "), }}")
        })();
        written.expect("a Vec takes everything");
        // The header ends with a line feed at a multiple of 64 bytes.
        let header = (bytes.len() - start + 1).next_multiple_of(64);
        bytes.resize(start + header - 1, b' ');
        bytes.push(b'\n');
        bytes[start + 8..start + 10].copy_from_slice(&((header - 10) as u16).to_le_bytes());
        numbers.into_iter().for_each(|number| number.put(bytes));
    }

    /// Adds the size of the picture that was annotated, if it is known.
    pub(super) fn image_size(&mut self, size: Option<(u32, u32)>) {
        if let Some((width, height)) = size {
            let bytes = self.begin("boxes.image_size.txt");
            write!(bytes, "{width} {height}").expect("a Vec takes everything");
        }
    }

    /// Adds the content of the file whose path these pieces make.
    ///
    /// # Errors
    /// If it cannot be read, is larger than 2 GiB, or is not a regular file.
    pub(super) fn file(&mut self, name: &'static str, path: &[&str]) -> Result<()> {
        append(self.begin(name), path)
    }

    /// The sample.
    ///
    /// # Errors
    /// If a field was added twice.
    pub(super) fn sample(self, key: &'s str) -> Result<Sample<'s>> {
        let (bytes, mut sample) = (&**self.bytes, Sample::new(key));
        let ends = self.fields.iter().skip(1).map(|field| field.1).chain([bytes.len()]);
        for (&(name, start), end) in self.fields.iter().zip(ends) {
            sample.push(name, &bytes[start..end])?;
        }
        Ok(sample)
    }
}

/// Appends the content of the file whose path these pieces make to `bytes`.
///
/// # Errors
/// If it cannot be read, is larger than 2 GiB, or is not a regular file.
pub(super) fn append(bytes: &mut Vec<u8>, path: &[&str]) -> Result<()> {
    let failed = |e: std::io::Error| Error::io(path.concat(), &e);
    // The path is put together where the file's bytes come afterwards.
    let start = bytes.len();
    path.iter().for_each(|piece| bytes.extend_from_slice(piece.as_bytes()));
    let opened = file::open(std::str::from_utf8(&bytes[start..]).expect("texts make a text"));
    bytes.truncate(start);
    opened.and_then(|opened| file::append(opened, bytes, MAX_FILE)).map_err(failed)
}

/// `folder` as text that the name of a file can follow.
///
/// # Errors
/// If it is not UTF-8.
pub(super) fn root(folder: &Path) -> Result<String> {
    let Some(text) = folder.to_str() else {
        return Err(Error::in_source("the path is not UTF-8").at_path(folder));
    };
    // Below the current folder names stand alone.
    let slash = if text.is_empty() || text.ends_with('/') { "" } else { "/" };
    Ok(format!("{text}{slash}"))
}

/// Splits the name of a picture's file into the sample's key and the field of the picture.
pub(super) fn key_and_field<'a>(name: &'a str, formats: &[Format]) -> (&'a str, &'static str) {
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = name[base..].rfind('.').map_or(name.len(), |dot| base + dot);
    let extension = name.get(dot + 1..).unwrap_or("");
    (&name[..dot], format::field_of_file(extension, formats).unwrap_or("img"))
}

/// Checks that the name of a file, as an annotation gives it, leads to a place below its folder.
///
/// # Errors
/// If it is absolute or has a `..`.
pub(super) fn below(name: &str) -> Result<()> {
    if is_below(name) {
        return Ok(());
    }
    Err(Error::in_source(format!("the picture's name {name:?} does not lead to a place below the folder of pictures")))
}

/// Whether a path, as data give it, is relative and without `..`.
pub(super) fn is_below(path: &str) -> bool {
    let stays = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    !path.is_empty() && Path::new(path).components().all(stays)
}

/// Checks a box against the size of its picture. Sets are rounded: an edge may reach out of the
/// picture by a hundredth of the side, and by `pixel`, as for [`Boxes`](crate::field::Boxes).
///
/// # Errors
/// With both numbers, if an edge is not a number, two edges are swapped, or one reaches out.
pub(super) fn check_box([x1, y1, x2, y2]: [f64; 4], width: f64, height: f64, pixel: f64) -> Result<()> {
    for (axis, side, low, high, room) in [("x", "wide", x1, x2, width), ("y", "high", y1, y2, height)] {
        let rounding = pixel.max(room / 100.0);
        // Not `low > high`: NaN is neither.
        if !(low <= high && low >= -rounding && high <= room + rounding) {
            return Err(Error::in_source(format!("{axis} from {low} to {high}, the picture is {room} {side}")));
        }
    }
    Ok(())
}
