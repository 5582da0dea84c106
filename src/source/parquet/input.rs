//! The bytes of a file: on this machine, or in a store.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use parquet::errors::ParquetError;

use crate::error::{Error, ErrorKind, Result};
use crate::source::ahead::Remote;
use crate::source::bytes::room;
use crate::source::medium::{Held, HeldFile};

/// Maximum number of bytes that are read at once.
const MOST: u64 = 1 << 30;

/// A Parquet file.
pub(super) struct Input {
    pub(super) file: HeldFile,
    /// The store, for a file in one.
    pub(super) remote: Option<Arc<Remote>>,
}

impl Input {
    pub(super) fn len(&self) -> u64 {
        self.file.len()
    }

    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    /// The `len` bytes from offset `at`. Not a read of the loader's order, whose bytes are fetched
    /// ahead.
    ///
    /// # Errors
    /// If they lie outside the file or cannot be read.
    pub(super) fn read(&self, at: u64, len: u64) -> Result<Cow<'_, [u8]>> {
        if at.checked_add(len).is_none_or(|end| end > self.len()) || len > MOST {
            let cause = format!("damaged: {len} bytes from offset {at} of {}", self.len());
            return Err(Error::in_source(cause));
        }
        let mut bytes = Vec::new();
        match (&self.file.held, &self.remote) {
            (Held::Map { map, .. }, _) => {
                let found = &map[at as usize..][..len as usize];
                self.file.load(found, at + len)?;
                return Ok(Cow::Borrowed(found));
            }
            (Held::Read(medium), _) => medium.read_ranges(&mut [(at, room(&mut bytes, len)?)])?,
            (Held::Stored(object), Some(remote)) => remote.direct(object, at, room(&mut bytes, len)?)?,
            (Held::Stored(_), None) => unreachable!("a file in a store has one"),
        }
        Ok(Cow::Owned(bytes))
    }
}

/// Bytes of a file, or a part of them that was read before, with its offset.
#[derive(Clone, Copy)]
pub(super) enum Bytes<'a> {
    File(&'a Input),
    Part(u64, &'a [u8]),
}

impl<'a> Bytes<'a> {
    /// The `len` bytes from offset `at` of the file.
    ///
    /// # Errors
    /// If they lie outside the part, and those of [`Input::read`].
    pub(super) fn get(self, at: u64, len: u64) -> Result<Cow<'a, [u8]>> {
        let (start, part) = match self {
            Bytes::File(input) => return input.read(at, len),
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
