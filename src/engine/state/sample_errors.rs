use std::collections::HashSet;

use crate::error::Error;

/// Policy for samples that cannot be read, decoded or transformed.
///
/// A panic in a custom source, decoder or transform is handled like an error. The loader does not
/// install a panic hook, so the program's own hook reports the panic, by default to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// Returns an error that names the sample in place of the batch. A program that continues after
    /// the error receives the next batch.
    #[default]
    Stop,
    /// Replaces the sample by a different one of the same batch and marks it
    /// [invalid](crate::BatchInfo::valid), so the batch keeps its shape. The row contains the
    /// [number](crate::BatchInfo::ids) and [key](crate::BatchInfo::keys) of the replacement. Each
    /// failing sample, as identified by its source index, is logged and listed in
    /// [`Batches::sample_errors`](crate::Batches::sample_errors) once. If all samples of a batch
    /// fail, the batch is an `Err`.
    Skip {
        /// Maximum number of distinct samples that the loader skips in its lifetime. If one more
        /// sample fails, the loader returns an error.
        max_skipped: u64,
    },
}

/// A skipped sample, with its first failure.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SampleError {
    /// Epoch of the first failure.
    pub epoch: u64,
    /// Number of the batch in that epoch.
    pub batch: u64,
    /// The error, which names the sample and the cause.
    pub error: Error,
}

/// The samples that failed, each listed once. The list is bounded: `max_skipped` entries, plus one
/// more that shows that the limit was exceeded.
#[derive(Default)]
pub(crate) struct Faults {
    listed: Vec<SampleError>,
    samples: HashSet<u64>,
}

impl Faults {
    pub(crate) fn listed(&self) -> &[SampleError] {
        &self.listed
    }

    /// Records that sample `sample` of the source failed. If the sample is already listed or the
    /// list is full, does nothing and returns false.
    pub(crate) fn note(&mut self, sample: u64, fault: SampleError, max_skipped: u64) -> bool {
        let new = !self.are_more_than(max_skipped) && self.samples.insert(sample);
        if new {
            self.listed.push(fault);
        }
        new
    }

    pub(crate) fn are_more_than(&self, max_skipped: u64) -> bool {
        self.listed.len() as u64 > max_skipped
    }
}
