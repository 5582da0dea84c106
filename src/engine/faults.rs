use std::collections::HashSet;

use crate::error::Error;

/// What happens when a sample cannot be read, decoded or transformed.
///
/// A panic in a source, decoder or transform of yours is such an error too. The panic hook reports
/// it once for each place in the source text, however many samples panic there; the others are
/// counted in a warning when the loader is closed. For this the first loader of a process puts a
/// hook before the one that it finds, which gets every other panic as before. A hook that you set
/// later replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The batch is an `Err` that names the sample, and the epoch ends.
    #[default]
    Stop,
    /// Another sample of the batch stands in for it, marked as not
    /// [valid](crate::HostBatch::valid), so that the batch keeps its shape. Each is logged and
    /// listed in [`Batches::faults`](crate::Batches::faults) once, however often it comes: by its
    /// index in the source. A batch of which no sample is sound is an `Err` all the same.
    Skip {
        /// If more samples of the source than this fail, over the life of the loader, a batch with
        /// one that fails is an `Err`.
        max_skipped: u64,
    },
}

/// A sample that was skipped, where it failed first.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fault {
    /// Epoch in which it failed first.
    pub epoch: u64,
    /// Number of the batch of that epoch it was meant for.
    pub batch: u64,
    /// The sample, and why it failed.
    pub error: Error,
}

/// The samples that failed, each once. As many as are allowed and one more, so that the list is
/// bounded and tells of too many.
#[derive(Default)]
pub(crate) struct Faults {
    listed: Vec<Fault>,
    samples: HashSet<u64>,
}

impl Faults {
    pub(super) fn listed(&self) -> &[Fault] {
        &self.listed
    }

    /// Notes that sample `sample` of the source failed, if that is new and there are not more than
    /// `max_skipped` already.
    pub(super) fn note(&mut self, sample: u64, fault: Fault, max_skipped: u64) {
        if !self.are_more_than(max_skipped) && self.samples.insert(sample) {
            let Fault { epoch, batch, error } = &fault;
            tracing::warn!(epoch, batch, "skipped: {error}");
            self.listed.push(fault);
        }
    }

    pub(super) fn are_more_than(&self, max_skipped: u64) -> bool {
        self.listed.len() as u64 > max_skipped
    }
}
