//! Fills a cache before a loader needs it.

use warpfeed_sources::Position;
use warpfeed_sources::Result;
use warpfeed_sources::{BatchIndex, Lookahead, Source};

/// Number of samples per batch. It affects only the granularity of the lookahead.
const BATCH_SAMPLES: u64 = 64;

/// Reads every sample of `source` once, in index order, and calls `read` after each sample. If the
/// source's store uses a [`Cache`](crate::Cache), this fills the cache up to its limit.
///
/// # Errors
/// Returns the error of the first sample that cannot be read.
pub fn warm(source: &dyn Source, mut read: impl FnMut()) -> Result<()> {
    let len = source.len() as u64;
    let samples = move |batch: BatchIndex| {
        Some((batch.batch * BATCH_SAMPLES..len.min((batch.batch + 1) * BATCH_SAMPLES)).collect())
    };
    let batches = move |epoch| if epoch == 0 { len.div_ceil(BATCH_SAMPLES) } else { 0 };
    let next = move |epoch, sample: u64, batch| match sample / BATCH_SAMPLES >= batch && epoch == 0 {
        true => Position::At(sample / BATCH_SAMPLES),
        false => Position::Absent,
    };
    let order = Lookahead::new(source.prefetch_bytes(), batches, samples).with_next(next);
    let prefetcher = source.prefetcher(order.clone());
    if let Some(prefetcher) = &prefetcher {
        prefetcher.start(BatchIndex::default());
    }
    let mut scratch = Vec::new();
    for (batch, samples) in order.batches_from(BatchIndex::default()) {
        for sample in samples {
            source.read_drawn(sample as usize, 0, &mut scratch)?;
            read();
        }
        if let Some(prefetcher) = &prefetcher {
            prefetcher.done(batch);
        }
    }
    Ok(())
}
