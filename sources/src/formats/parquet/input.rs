//! Reads bytes from a local file or an object in a store, and guards calls to the `parquet` crate.

use parquet::errors::ParquetError;
use std::borrow::Cow;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::bytes::grow_to;
use crate::storage::OpenFile;

const MAX_READ_BYTES: u64 = 1 << 30;

/// Reads `len` bytes at `offset` of a file directly, without the prefetcher. Fails if the bytes are
/// outside the file or exceed [`MAX_READ_BYTES`].
pub(super) fn read(file: &OpenFile, offset: u64, len: u64) -> Result<Cow<'_, [u8]>> {
    let exceeded = if offset.checked_add(len).is_none_or(|end| end > file.len()) {
        Some(("file", file.len()))
    } else {
        (len > MAX_READ_BYTES).then_some(("limit", MAX_READ_BYTES))
    };
    if let Some((what, size)) = exceeded {
        let cause = format!("damaged: {len} bytes at offset {offset} exceed the {what} of {size} bytes");
        return Err(Error::in_source(cause));
    }
    if let Some(map) = file.map() {
        let mapped = &map[offset as usize..][..len as usize];
        return file.load(mapped, offset + len).map(|()| Cow::Borrowed(mapped));
    }
    let mut bytes = Vec::new();
    file.fill(offset, grow_to(&mut bytes, len)?)?;
    Ok(Cow::Owned(bytes))
}

/// A file, or bytes that were already read, with their offset in the file.
#[derive(Clone, Copy)]
pub(super) enum ByteSource<'a> {
    File(&'a OpenFile),
    Slice(u64, &'a [u8]),
}

impl<'a> ByteSource<'a> {
    /// Fails if the bytes are outside the file or the slice, or if [`read`] fails.
    pub(super) fn get(self, offset: u64, len: u64) -> Result<Cow<'a, [u8]>> {
        let (start, slice) = match self {
            ByteSource::File(file) => return read(file, offset, len),
            ByteSource::Slice(start, slice) => (start, slice),
        };
        let bytes = offset
            .checked_sub(start)
            .and_then(|from| slice.get(usize::try_from(from).ok()?..)?.get(..usize::try_from(len).ok()?));
        bytes.map(Cow::Borrowed).ok_or_else(|| {
            let size = slice.len();
            Error::in_source(format!(
                "damaged: {len} bytes at offset {offset} exceed the {size} bytes at offset {start}"
            ))
        })
    }
}

/// Converts panics of the `parquet` crate, which damaged files may cause, to errors.
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
