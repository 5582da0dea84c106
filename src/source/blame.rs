//! [`blame`]: an error becomes a sample's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::source::Source;
use crate::error::Error;

/// Makes `error` the error of sample `index` of `source`, with its key and its
/// [file](Source::path). The key is empty if it could not be read. The loader makes all its sample
/// errors this way. Programs that read a source themselves can do the same.
pub fn blame(source: &dyn Source, index: usize, key: &str, error: Error) -> Error {
    let error = error.at_sample(index as u64, key);
    // The path may be the user's code, and what it panics with says less than the error at hand.
    match catch_unwind(AssertUnwindSafe(|| source.path(index))) {
        Ok(Some(path)) => error.at_path(path),
        _ => error,
    }
}
