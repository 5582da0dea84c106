//! Reads bytes from a local file or an object in a store, and guards calls to the `parquet` crate.

use parquet::errors::ParquetError;
use std::borrow::Cow;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::bytes::grow_to;
use crate::storage::OpenFile;

const MAX_READ_BYTES: u64 = 1 << 30;

/// Reads bytes of a file, without the prefetcher.
pub(super) fn read(file: &OpenFile, offset: u64, len: u64) -> Result<Cow<'_, [u8]>> {
    if offset.checked_add(len).is_none_or(|end| end > file.len()) || len > MAX_READ_BYTES {
        return Err(Error::in_source(format!(
            "damaged: {len} bytes at offset {offset} exceed the file of {} bytes, or the limit of {MAX_READ_BYTES} bytes",
            file.len()
        )));
    }
    if let Some(map) = file.map() {
        let mapped = &map[offset as usize..][..len as usize];
        return file.load(mapped, offset + len).map(|()| Cow::Borrowed(mapped));
    }
    let mut bytes = Vec::new();
    file.fill(offset, grow_to(&mut bytes, len)?)?;
    Ok(Cow::Owned(bytes))
}

/// The bytes of a file, or of a range that has already been read, with the offset of the range in
/// the file.
#[derive(Clone, Copy)]
pub(super) enum Bytes<'a> {
    File(&'a OpenFile),
    Slice(u64, &'a [u8]),
}

impl<'a> Bytes<'a> {
    /// Returns `len` bytes at `offset`. Fails if they are outside the range that has been read.
    pub(super) fn get(self, offset: u64, len: u64) -> Result<Cow<'a, [u8]>> {
        let (start, slice) = match self {
            Bytes::File(file) => return read(file, offset, len),
            Bytes::Slice(start, slice) => (start, slice),
        };
        let bytes = offset
            .checked_sub(start)
            .and_then(|from| slice.get(usize::try_from(from).ok()?..)?.get(..usize::try_from(len).ok()?));
        let outside = || Error::in_source(format!("damaged: {len} bytes at offset {offset} are not inside the column"));
        bytes.map(Cow::Borrowed).ok_or_else(outside)
    }
}

/// Runs code that calls the `parquet` crate, which may panic on damaged files, and converts panics
/// to errors.
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    crate::error::guarded(run).map_err(|e| match e.kind() {
        ErrorKind::Panic => Error::in_source(format!("damaged: {}", e.cause())),
        _ => e,
    })
}

pub(super) fn library_error(error: ParquetError) -> Error {
    match error {
        ParquetError::NYI(what) => Error::in_source(format!("not supported: {what}")),
        other => Error::in_source(format!("damaged: {other}")),
    }
}
