use super::source::Source;
use crate::error::{Error, guarded};

/// Adds a sample to an error: its index, its key and its [file](Source::path). `key` must be empty
/// if the key could not be read. The loader calls this function for every error of a sample.
/// Programs that read a source directly can call it themselves.
pub fn sample_error(source: &dyn Source, index: usize, key: &str, error: Error) -> Error {
    let error = error.at_sample(index as u64, key);
    // `path` may be user code. If it panics, return `error` without a path, because `error` is more
    // useful than the panic.
    match guarded(|| Ok(source.path(index))) {
        Ok(Some(path)) => error.at_path(path),
        _ => error,
    }
}
