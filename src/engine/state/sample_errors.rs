//! The policy for failed samples, and the list of these samples.

use std::collections::HashSet;

use crate::error::Error;

/// Policy for samples that cannot be read, decoded or transformed.
///
/// A panic in a custom source, decoder or transform counts as an error. The loader does not install
/// a panic hook, so the program's own hook reports the panic, by default on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// Returns an error, which names the sample, instead of the batch. The program may continue
    /// with the next batch.
    #[default]
    Stop,
    /// Replaces the sample with a different one from the same batch and marks the row as
    /// [invalid](crate::BatchInfo::valid), so the batch keeps its shape. The row has the
    /// [index](crate::BatchInfo::ids) and the [key](crate::BatchInfo::sample_keys) of the replacement. A
    /// sample that fails repeatedly is logged and listed in
    /// [`Batches::sample_errors`](crate::Batches::sample_errors) only once. If all samples of a
    /// batch fail, or if the process or the machine ran out of memory or file descriptors, the
    /// loader returns an error instead of the batch.
    Skip {
        /// Maximum number of distinct samples that the loader skips before it returns an error.
        max_skipped: u64,
    },
}

/// A sample that was skipped, and its first failure.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SampleError {
    /// Epoch of the first failure.
    pub epoch: u64,
    /// Index, in this epoch, of the batch with the first failure.
    pub batch: u64,
    /// The error, which names the sample.
    pub error: Error,
}

/// Lists each failed sample once, and at most `max_skipped` + 1 samples.
#[derive(Default)]
pub(crate) struct SampleErrors {
    errors: Vec<SampleError>,
    listed_samples: HashSet<u64>,
}

impl SampleErrors {
    pub(crate) fn errors(&self) -> &[SampleError] {
        &self.errors
    }

    /// Adds a sample of the source to the list, unless it is already listed or the list is full.
    /// Returns whether it was added.
    pub(crate) fn record(&mut self, sample: u64, error: SampleError, max_skipped: u64) -> bool {
        let is_new = !self.is_over_limit(max_skipped) && self.listed_samples.insert(sample);
        if is_new {
            self.errors.push(error);
        }
        is_new
    }

    pub(crate) fn is_over_limit(&self, max_skipped: u64) -> bool {
        self.errors.len() as u64 > max_skipped
    }
}
