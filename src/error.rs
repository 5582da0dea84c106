//! Re-exports the errors of [`warpfeed_sources`], and converts JPEG errors.

pub use warpfeed_sources::{Error, ErrorKind, Result};

use warpfeed_sources::internal;
#[cfg(feature = "pack")]
pub(crate) use warpfeed_sources::internal::append;
pub(crate) use warpfeed_sources::internal::{counted, panicked, reserve, resize};

/// Runs code that may be user code, and converts a panic into an error. If the panic payload is an
/// [`Error`], it is returned unchanged. If the payload is a JPEG error, it is
/// [converted](from_jpeg).
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    internal::guarded_with(f, |panic| panic.downcast().map(|e| from_jpeg(*e)))
}

/// Converts a JPEG error. This is not an `impl From`, because with a second conversion into
/// [`Error`], the compiler could not infer the error type of closures that end in `Ok(())`.
pub(crate) fn from_jpeg(e: warpfeed_jpeg::Error) -> Error {
    let kind = if e.is_out_of_memory() { ErrorKind::Memory } else { ErrorKind::Decode };
    Error::new(kind, e.to_string())
}
