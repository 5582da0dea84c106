use super::column::{Choose, Column};
use super::zip::{self, Member};
use crate::error::{Error, Result};
use crate::machine::bytes::Bytes;
use crate::values::Npy;
use crate::values::elements::Dtype;

/// Bytes of a file that are read for its header. Only structured types have long headers.
const MOST_HEADER: u64 = 128 << 10;

/// Maximum size of all arrays of a compressed archive.
const MOST_INFLATED: u64 = 4 << 30;

/// Type and shape of the array `name` in `.npy` data, and the start of its elements.
fn header(name: &str, start: &[u8]) -> Result<(Dtype, Vec<usize>, u64)> {
    let npy = Npy::read(start).map_err(|e| Error::in_source(format!("array {name:?}: {}", e.cause())))?;
    let bad = |cause: &str| Err(Error::in_source(format!("array {name:?} {cause}: {}", npy.shown())));
    let Some(shape) = npy.shape.as_ref() else { return bad("has no shape of up to 8 axes") };
    if npy.shown().contains("'|O'") {
        return bad("has pickled Python objects as elements; save numbers");
    }
    if npy.size == 0 {
        return bad("has elements of several parts; save each as an array of its own");
    }
    if npy.fortran && shape.iter().filter(|&&side| side != 1).count() > 1 {
        return bad("is in Fortran order, so its samples are not contiguous; save numpy.ascontiguousarray of it");
    }
    let dtype = Dtype { kind: npy.kind, size: npy.size, big_endian: npy.big_endian };
    Ok((dtype, shape.to_vec(), npy.start as u64))
}

/// The array in the `.npy` data of file `number`: `len` bytes from `at` on.
fn in_file(bytes: &dyn Bytes, name: &str, number: usize, at: u64, len: u64) -> Result<Column> {
    let mut scratch = Vec::new();
    let (dtype, shape, start) = header(name, bytes.get(at, len.min(MOST_HEADER) as usize, &mut scratch)?)?;
    Column::in_file(name.to_owned(), dtype, shape, (number, at + start, len - start))
}

/// The array `name` of the `.npy` file in `bytes`, which is file `number`.
///
/// # Errors
/// If it is damaged, or its samples are not contiguous.
pub(super) fn npy(bytes: &dyn Bytes, name: String, number: usize) -> Result<Column> {
    in_file(bytes, &name, number, 0, bytes.len())
}

/// The arrays of the archive in file `number` that `choose` keeps. Stored arrays stay in the file,
/// and compressed ones are decompressed.
///
/// # Errors
/// If the archive is damaged, or its arrays exceed 4 GiB when they are decompressed.
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
            "the compressed arrays have more than {MOST_INFLATED} bytes when they are decompressed into memory; save \
             them with numpy.savez instead of savez_compressed, to use them from the file"
        ))
    })?;
    let mut content = zip::content(bytes, member, MOST_INFLATED)?;
    let (dtype, shape, start) = header(name, &content[..content.len().min(MOST_HEADER as usize)])?;
    content.drain(..start as usize);
    Column::in_memory(name.to_owned(), dtype, shape, content)
}
