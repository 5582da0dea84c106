//! Checks the two meta pages of an LMDB file before LMDB maps it.
//!
//! LMDB trusts the number of the last page in a meta page. If the file is shorter, an access beyond
//! its end kills the process. This module therefore compares the end of the last page with the
//! length of the file. The layout follows `MDB_page` and `MDB_meta` in liblmdb's `mdb.c`: data
//! version 1, for 64-bit systems, in native byte order.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::detect::{LMDB_MAGIC, is_lmdb};
use crate::error::{Error, Result};
use crate::machine::file;

const VERSION: u32 = 1;
/// Size of the header of `MDB_page` (16 bytes) plus `MDB_meta` (136 bytes).
const META_BYTES: usize = 152;
/// Valid page sizes, in bytes. The maximum is the `MAX_PAGESIZE` of liblmdb's development builds;
/// releases create pages of at most half that size. A power of two below 256 is less than
/// [`META_BYTES`].
const PAGE_SIZES: std::ops::RangeInclusive<usize> = 256..=0x1_0000;

/// Checks that the file `data` (`data.mdb`, or a database in a single file) contains all pages up
/// to the last one, according to the newer of its two meta pages. Returns the map size that the
/// writer requested, in bytes.
pub(super) fn check_file(data: &Path) -> Result<u64> {
    let io = |e: io::Error| Error::io(data, &e);
    let mut file = file::open(data).map_err(io)?;
    let len = file.metadata().map_err(io)?.len();
    check_pages(len, |offset, page| file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(page)).map_err(io))
        .map_err(|e| e.at_path(data))
}

/// Like [`check`], for a file of `len` bytes. `read(offset, page)` must fill `page` with the bytes
/// at `offset`.
pub(super) fn check_pages(len: u64, mut read: impl FnMut(u64, &mut [u8]) -> Result<()>) -> Result<u64> {
    let error = |cause: String| Err(Error::in_source(cause));
    let mut page_size = 0;
    let mut newest = (0, 0, 0);
    for index in 0..2_u64 {
        let offset = index * page_size as u64;
        if offset + META_BYTES as u64 > len {
            return error(format!(
                "lmdb file is too short: meta page {index} takes {META_BYTES} bytes at byte {offset}, but the file has \
                 {len} bytes"
            ));
        }
        let mut page = [0; META_BYTES];
        read(offset, &mut page)?;
        if !is_lmdb(&page) {
            let swapped = page[16..20] == LMDB_MAGIC.swap_bytes().to_ne_bytes();
            let reason = if swapped {
                "it was written on a machine with a different byte order"
            } else {
                "the magic number is missing"
            };
            return error(format!("not an lmdb file: {reason} at byte {}", offset + 16));
        }
        let u32_at = |i: usize| u32::from_ne_bytes([page[i], page[i + 1], page[i + 2], page[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        if u32_at(20) != VERSION {
            return error(format!(
                "lmdb data version {} at byte {}: expected version {VERSION}",
                u32_at(20),
                offset + 20
            ));
        }
        // LMDB stores the page size in `md_pad` of the database of free pages.
        page_size = u32_at(40) as usize;
        if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
            return error(format!(
                "lmdb page size {page_size} at byte {}: expected a power of two from 256 to 65536",
                offset + 40
            ));
        }
        // The number of the last transaction, the number of the last page, and the map size in
        // bytes.
        newest = newest.max((u64_at(144), u64_at(136), u64_at(32)));
    }
    let last_page = newest.1;
    let needed = last_page.saturating_add(1).saturating_mul(page_size as u64);
    if needed > len {
        return error(format!(
            "lmdb file is truncated: page {last_page} of {page_size} bytes ends at byte {needed}, but the file has \
             {len} bytes (if the file is complete, `mdb_copy -c` rewrites it without unused pages at its end)"
        ));
    }
    Ok(newest.2)
}
