//! Reads `.npy` files, and `.npz` archives of them.

use super::column::{ArraySelector, Column};
use super::zip::{self, Member};
use crate::error::{Error, Result};
use crate::machine::bytes::Bytes;
use crate::values::Npy;
use crate::values::elements::Dtype;

/// Maximum size of a header, in bytes. NumPy writes longer headers for some structured types, which
/// are not supported.
const MAX_HEADER_BYTES: u64 = 128 << 10;

/// Maximum total size of the arrays that are decompressed from one archive, in bytes.
const MAX_DECOMPRESSED_BYTES: u64 = 4 << 30;

/// Returns the element type, the shape, and the offset of the elements from the start of the
/// header. `start` begins with the header.
fn parse_header(name: &str, start: &[u8]) -> Result<(Dtype, Vec<usize>, u64)> {
    let npy = Npy::read(start).map_err(|e| Error::in_source(format!("array {name:?}: {}", e.cause())))?;
    let error = |cause: &str| Err(Error::in_source(format!("array {name:?} {cause}: {}", npy.header_for_message())));
    let Some(shape) = npy.shape.as_ref() else { return error("has an invalid shape, or more than 8 axes") };
    if npy.header_for_message().contains("'|O'") {
        return error("contains pickled Python objects: save numbers instead");
    }
    if npy.item_size == 0 {
        return error("has a structured type: save each field as a separate array");
    }
    if npy.fortran_order && shape.iter().filter(|&&side| side != 1).count() > 1 {
        return error(
            "is in Fortran order, so its samples are not contiguous: save numpy.ascontiguousarray(array) instead",
        );
    }
    let dtype = Dtype { kind: npy.kind, size: npy.item_size, big_endian: npy.big_endian };
    Ok((dtype, shape.to_vec(), npy.data_offset as u64))
}

/// Reads the description of an array in a file. `offset` is the offset of its `.npy` header, and
/// `len` is the total size of the header and the elements, in bytes.
fn column_in_file(bytes: &dyn Bytes, name: &str, file_index: usize, offset: u64, len: u64) -> Result<Column> {
    let mut scratch = Vec::new();
    let (dtype, shape, start) =
        parse_header(name, bytes.get(offset, len.min(MAX_HEADER_BYTES) as usize, &mut scratch)?)?;
    Column::in_file(name.to_owned(), dtype, shape, file_index, offset + start, len - start)
}

pub(super) fn npy(bytes: &dyn Bytes, name: String, file_index: usize) -> Result<Column> {
    column_in_file(bytes, &name, file_index, 0, bytes.len())
}

/// Compressed arrays are decompressed into memory. Uncompressed arrays stay in the file.
pub(super) fn npz(bytes: &dyn Bytes, file_index: usize, selector: ArraySelector<'_>) -> Result<Vec<Column>> {
    let members = zip::list_members(bytes)?;
    let column_name = |member: &Member| member.name.strip_suffix(".npy").unwrap_or(&member.name).to_owned();
    let names: Vec<String> = members.iter().map(column_name).collect();
    let (mut budget, mut verify_budget) = (MAX_DECOMPRESSED_BYTES, zip::MAX_VERIFIED_BYTES);
    let column = |(index, name): (usize, String)| {
        let member: &Member = &members[index];
        match member.is_deflated {
            false => {
                if let Some(rest) = verify_budget.checked_sub(member.compressed_len) {
                    verify_budget = rest;
                    zip::verify_checksum(bytes, member)?;
                }
                column_in_file(bytes, &name, file_index, member.offset, member.len)
            }
            true => decompress(bytes, &name, member, &mut budget),
        }
    };
    selector(&names)?.into_iter().map(column).collect()
}

fn decompress(bytes: &dyn Bytes, name: &str, member: &Member, budget: &mut u64) -> Result<Column> {
    *budget = budget.checked_sub(member.len).ok_or_else(|| {
        Error::in_source(format!(
            "the arrays exceed {MAX_DECOMPRESSED_BYTES} bytes when decompressed into memory: save them with \
             numpy.savez instead of savez_compressed, so that they can be read from the file"
        ))
    })?;
    let mut content = zip::read_member(bytes, member, MAX_DECOMPRESSED_BYTES)?;
    let (dtype, shape, start) = parse_header(name, &content[..content.len().min(MAX_HEADER_BYTES as usize)])?;
    content.drain(..start as usize);
    Column::in_memory(name.to_owned(), dtype, shape, content)
}
