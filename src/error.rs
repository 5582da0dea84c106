//! The errors of the crate: those of [`warpfeed_sources`], and of JPEGs.

pub use warpfeed_sources::{Error, ErrorKind, Result};

use warpfeed_sources::internal;
#[cfg(feature = "pack")]
pub(crate) use warpfeed_sources::internal::append;
pub(crate) use warpfeed_sources::internal::{counted, panicked, reserve, resize};

/// Runs code that may be the user's, and turns a panic into an error. A panic with an error, also of
/// a JPEG, becomes that error.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    internal::guarded_with(f, |panic| panic.downcast().map(|e| of_jpeg(*e)))
}

/// What is wrong with a JPEG. This is not an `impl From`: with a second conversion into the error,
/// the compiler could not infer the error of a closure that ends in `Ok(())`.
pub(crate) fn of_jpeg(e: warpfeed_jpeg::Error) -> Error {
    let kind = if e.is_out_of_memory() { ErrorKind::Memory } else { ErrorKind::Decode };
    Error::new(kind, e.to_string())
}
