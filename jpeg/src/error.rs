use std::fmt;

/// The result of reading a JPEG.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a file is refused, with its place in the file: `jpeg ends at byte 4096 in MCU 61
/// of 132`.
///
/// `Debug` prints the same text as `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<str>);

impl Error {
    pub(crate) fn new(text: impl Into<Box<str>>) -> Self {
        Error(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
