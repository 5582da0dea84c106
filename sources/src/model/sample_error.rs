use super::source::Source;
use crate::error::{Error, guarded};

/// Adds the sample to an error: its index, its key and its [file](Source::path). `key` is empty if
/// it could not be read. The loader adds it to all errors of samples. Programs that read a source
/// themselves can do the same.
pub fn sample_error(source: &dyn Source, index: usize, key: &str, error: Error) -> Error {
    let error = error.at_sample(index as u64, key);
    // The path may come from the user's code. A panic there is less useful than `error`.
    match guarded(|| Ok(source.path(index))) {
        Ok(Some(path)) => error.at_path(path),
        _ => error,
    }
}
