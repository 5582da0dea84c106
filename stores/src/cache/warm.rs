//! Fills a cache before a loader needs it.

use warpfeed_sources::Position;
use warpfeed_sources::Result;
use warpfeed_sources::{BatchIndex, Lookahead, Source};

/// Samples of a batch. Only the granularity of the lookahead depends on it.
const BATCH: u64 = 64;

/// Reads every sample of `source` once, in its own order, and calls `read` after each. A source
/// whose store has a [`Cache`](crate::Cache) fills it until it is full.
///
/// # Errors
/// The error of the first sample that cannot be read.
pub fn warm(source: &dyn Source, mut read: impl FnMut()) -> Result<()> {
    let len = source.len() as u64;
    let samples = move |place: BatchIndex| Some((place.batch * BATCH..len.min((place.batch + 1) * BATCH)).collect());
    let batches = move |epoch| if epoch == 0 { len.div_ceil(BATCH) } else { 0 };
    let next = move |epoch, sample: u64, batch| match sample / BATCH >= batch && epoch == 0 {
        true => Position::At(sample / BATCH),
        false => Position::Absent,
    };
    let order = Lookahead::new(source.ahead_bytes(), batches, samples).with_next(next);
    let follow = source.follow(order.clone());
    if let Some(follow) = &follow {
        follow.start(BatchIndex::default());
    }
    let mut scratch = Vec::new();
    for (place, samples) in order.from(BatchIndex::default()) {
        for sample in samples {
            source.read(sample as usize, &mut scratch)?;
            read();
        }
        if let Some(follow) = &follow {
            follow.done(place);
        }
    }
    Ok(())
}
