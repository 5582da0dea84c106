use std::collections::HashSet;

use crate::error::Error;

/// Policy for samples that cannot be read, decoded or transformed.
///
/// A panic in your own source, decoder or transform also counts as an error. The loader does not
/// touch the program's panic hook, which by default prints the place of each panic to standard
/// error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The batch is an `Err` that names the sample. A program that goes on receives the next batch.
    #[default]
    CancelToken,
    /// Replaces the sample by another of the same batch and marks it
    /// [invalid](crate::BatchInfo::valid), so the batch keeps its shape. Its
    /// [number](crate::BatchInfo::ids) and [key](crate::BatchInfo::keys) are those of the
    /// replacement. Each failing sample is
    /// logged and listed in [`Batches::sample_errors`](crate::Batches::sample_errors) once, by source index. A
    /// batch in which every sample fails is an `Err`.
    Skip {
        /// Maximum number of distinct samples skipped over the loader's lifetime. One more is an
        /// error.
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
    /// The error. It names the sample and the cause.
    pub error: Error,
}

/// The samples that failed, each once. The list is bounded: `max_skipped` entries, and one more
/// that shows that there are too many.
#[derive(Default)]
pub(crate) struct Faults {
    listed: Vec<SampleError>,
    samples: HashSet<u64>,
}

impl Faults {
    pub(crate) fn listed(&self) -> &[SampleError] {
        &self.listed
    }

    /// Records that sample `sample` of the source failed. Returns false and does nothing if the
    /// sample is recorded already, or if there are more than `max_skipped`.
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
