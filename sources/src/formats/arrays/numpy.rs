//! NumPy files: `.npy`, and `.npz` archives of such files.

use super::column::{Choose, Column};
use super::zip::{self, Member};
use crate::error::{Error, Result};
use crate::machine::bytes::Bytes;
use crate::values::Npy;
use crate::values::elements::Dtype;

/// Maximum number of bytes that are read to parse the header of an array. Only structured types
/// have long headers.
const MOST_HEADER: u64 = 128 << 10;

/// Maximum total size of the arrays that are decompressed from an archive, in bytes.
const MOST_INFLATED: u64 = 4 << 30;

/// Returns the type and the shape of the array `name`, and the offset of its elements in the `.npy`
/// data.
fn header(name: &str, start: &[u8]) -> Result<(Dtype, Vec<usize>, u64)> {
    let npy = Npy::read(start).map_err(|e| Error::in_source(format!("array {name:?}: {}", e.cause())))?;
    let bad = |cause: &str| Err(Error::in_source(format!("array {name:?} {cause}: {}", npy.shown())));
    let Some(shape) = npy.shape.as_ref() else { return bad("has an invalid shape, or more than 8 axes") };
    if npy.shown().contains("'|O'") {
        return bad("contains pickled Python objects: save numbers instead");
    }
    if npy.size == 0 {
        return bad("has a structured type: save each part as a separate array");
    }
    if npy.fortran && shape.iter().filter(|&&side| side != 1).count() > 1 {
        return bad("is in Fortran order, so its samples are not contiguous: save numpy.ascontiguousarray(array)");
    }
    let dtype = Dtype { kind: npy.kind, size: npy.size, big_endian: npy.big_endian };
    Ok((dtype, shape.to_vec(), npy.start as u64))
}

/// Returns the array whose `.npy` data is `len` bytes long and starts at offset `at` in file
/// `number`.
fn in_file(bytes: &dyn Bytes, name: &str, number: usize, at: u64, len: u64) -> Result<Column> {
    let mut scratch = Vec::new();
    let (dtype, shape, start) = header(name, bytes.get(at, len.min(MOST_HEADER) as usize, &mut scratch)?)?;
    Column::in_file(name.to_owned(), dtype, shape, (number, at + start, len - start))
}

/// Returns the array in the `.npy` file `number`, and calls it `name`.
///
/// # Errors
/// If the file is damaged, or if the samples are not contiguous.
pub(super) fn npy(bytes: &dyn Bytes, name: String, number: usize) -> Result<Column> {
    in_file(bytes, &name, number, 0, bytes.len())
}

/// Returns the arrays that `choose` selects in archive `number`. Compressed arrays are decompressed
/// into memory. Uncompressed arrays are later read from the file.
///
/// # Errors
/// If the archive is damaged, or if the decompressed arrays would exceed 4 GiB.
pub(super) fn npz(bytes: &dyn Bytes, number: usize, choose: Choose<'_>) -> Result<Vec<Column>> {
    let members = zip::members(bytes)?;
    let plain = |member: &Member| member.name.strip_suffix(".npy").unwrap_or(&member.name).to_owned();
    let names: Vec<String> = members.iter().map(plain).collect();
    let (mut left, mut unchecked) = (MOST_INFLATED, zip::MOST_CHECKED);
    let column = |(place, name): (usize, String)| {
        let member: &Member = &members[place];
        match member.deflated {
            false => {
                if let Some(rest) = unchecked.checked_sub(member.stored) {
                    unchecked = rest;
                    zip::check(bytes, member)?;
                }
                in_file(bytes, &name, number, member.offset, member.len)
            }
            true => inflated(bytes, &name, member, &mut left),
        }
    };
    choose(&names)?.into_iter().map(column).collect()
}

fn inflated(bytes: &dyn Bytes, name: &str, member: &Member, left: &mut u64) -> Result<Column> {
    *left = left.checked_sub(member.len).ok_or_else(|| {
        Error::in_source(format!(
            "the arrays have more than {MOST_INFLATED} bytes after decompression into memory: save them with \
             numpy.savez instead of savez_compressed, so that they can be read from the file"
        ))
    })?;
    let mut content = zip::content(bytes, member, MOST_INFLATED)?;
    let (dtype, shape, start) = header(name, &content[..content.len().min(MOST_HEADER as usize)])?;
    content.drain(..start as usize);
    Column::in_memory(name.to_owned(), dtype, shape, content)
}
