//! [`sample_error`]: adds a sample to an error.

use super::source::Source;
use crate::error::{Error, guarded};

/// Adds the index, the key and the [file](Source::path) of a sample to an error that does not have
/// them yet. If the key could not be read, `key` must be empty. A loader calls this function for
/// every error of a sample, and programs that read a source directly can do the same.
pub fn sample_error(source: &dyn Source, index: usize, key: &str, error: Error) -> Error {
    let error = error.at_sample(index as u64, key);
    // `path` may be user code. Ignore its panics, because `error` is more useful.
    match guarded(|| Ok(source.path(index))) {
        Ok(Some(path)) => error.at_path(path),
        _ => error,
    }
}
