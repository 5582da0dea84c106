//! Restricts a custom sampler to a subset of the samples.

use std::panic::resume_unwind;
use std::sync::Arc;

use super::{Occurrence, Position, Sampler};
use crate::error::Error;

/// A custom sampler that is restricted to a subset. If the sampler returns a sample that is not in
/// the subset, `WithinSubset` panics with an [`Error`](crate::Error) as the payload, without
/// calling the panic hook.
pub(crate) struct WithinSubset {
    inner: Arc<dyn Sampler>,
    samples: Box<[u64]>,
}

impl WithinSubset {
    pub(crate) fn new(samples: &[u64], inner: Arc<dyn Sampler>) -> Self {
        let mut samples = samples.to_vec();
        samples.sort_unstable();
        WithinSubset { inner, samples: samples.into() }
    }
}

impl Sampler for WithinSubset {
    fn len(&self, epoch: u64) -> u64 {
        self.inner.len(epoch)
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        self.occurrence(epoch, position).index
    }

    fn occurrence(&self, epoch: u64, position: u64) -> Occurrence {
        let occurrence = self.inner.occurrence(epoch, position);
        if self.samples.binary_search(&occurrence.index).is_err() {
            let Occurrence { index, .. } = occurrence;
            resume_unwind(Box::new(Error::config(format!(
                "the sampler returned sample {index} at position {position} of epoch {epoch}, which is not in the subset; \
                 a sampler must return source indices, not positions in the subset"
            ))));
        }
        occurrence
    }

    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        self.inner.position(epoch, index, from)
    }
}
