//! The bytes of a file: on this machine, or in a store.

use parquet::errors::ParquetError;
use std::borrow::Cow;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::bytes::room;
use crate::medium::HeldFile;

/// Maximum number of bytes that are read at once.
const MOST: u64 = 1 << 30;

/// The `len` bytes of `file` from offset `at`. Not a read of the loader's order, whose bytes are
/// fetched ahead.
///
/// # Errors
/// If they lie outside the file or cannot be read.
pub(super) fn read(file: &HeldFile, at: u64, len: u64) -> Result<Cow<'_, [u8]>> {
    if at.checked_add(len).is_none_or(|end| end > file.len()) || len > MOST {
        return Err(Error::in_source(format!("damaged: {len} bytes from offset {at} of {}", file.len())));
    }
    if let Some(map) = file.map() {
        let found = &map[at as usize..][..len as usize];
        return file.load(found, at + len).map(|()| Cow::Borrowed(found));
    }
    let mut bytes = Vec::new();
    file.fill(at, room(&mut bytes, len)?)?;
    Ok(Cow::Owned(bytes))
}

/// Bytes of a file, or a part of them that was read before, with its offset.
#[derive(Clone, Copy)]
pub(super) enum Bytes<'a> {
    File(&'a HeldFile),
    Part(u64, &'a [u8]),
}

impl<'a> Bytes<'a> {
    /// The `len` bytes from offset `at` of the file.
    ///
    /// # Errors
    /// If they lie outside the part, and those of [`read`].
    pub(super) fn get(self, at: u64, len: u64) -> Result<Cow<'a, [u8]>> {
        let (start, part) = match self {
            Bytes::File(file) => return read(file, at, len),
            Bytes::Part(start, part) => (start, part),
        };
        let found = at
            .checked_sub(start)
            .and_then(|from| part.get(usize::try_from(from).ok()?..)?.get(..usize::try_from(len).ok()?));
        let lost = || Error::in_source(format!("damaged: {len} bytes from offset {at} of a column"));
        found.map(Cow::Borrowed).ok_or_else(lost)
    }
}

/// Runs the library, whose panics are errors of the file.
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    crate::error::guarded(run).map_err(|e| match e.kind() {
        ErrorKind::Panic => Error::in_source(format!("damaged: {}", e.cause())),
        _ => e,
    })
}

/// An error of the library.
pub(super) fn inward(error: ParquetError) -> Error {
    match error {
        ParquetError::NYI(what) => Error::in_source(format!("not read: {what}")),
        other => Error::in_source(format!("damaged: {other}")),
    }
}
