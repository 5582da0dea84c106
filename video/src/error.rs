//! The error type of the crate.

use std::fmt;

/// The result type of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error from reading or decoding a video.
///
/// `Debug` prints the same text as `Display`.
pub struct Error {
    kind: ErrorKind,
    text: Box<str>,
    io: Option<std::io::Error>,
}

/// The kind of problem that an [`Error`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The bytes are damaged.
    Damaged,
    /// The bytes may be valid, but this crate does not support them.
    Unsupported,
    /// Reading failed.
    Io,
    /// The GPU or its driver failed, or the process is exiting.
    Device,
    /// An allocation failed.
    Memory,
}

impl Error {
    /// Creates an error of the given kind.
    pub fn new(kind: ErrorKind, text: impl Into<Box<str>>) -> Self {
        Error { kind, text: text.into(), io: None }
    }

    pub(crate) fn damaged(text: impl Into<Box<str>>) -> Self {
        Error::new(ErrorKind::Damaged, text)
    }

    pub(crate) fn unsupported(text: impl Into<Box<str>>) -> Self {
        Error::new(ErrorKind::Unsupported, text)
    }

    /// Returns the error of the [`Input`](crate::Input), if reading failed.
    pub fn into_io(self) -> Option<std::io::Error> {
        self.io
    }

    /// Returns the kind of the problem.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Reserves capacity for `additional` elements. Allocations with a size that depends on the file
/// use this function, because an infallible allocation aborts the process when memory runs out.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, additional: usize) -> Result<()> {
    vec.try_reserve_exact(additional).map_err(|_| {
        let bytes = additional.saturating_mul(size_of::<T>());
        Error::new(ErrorKind::Memory, format!("cannot allocate {bytes} bytes"))
    })
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        let text = error.to_string();
        Error { io: Some(error), ..Error::new(ErrorKind::Io, text) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
