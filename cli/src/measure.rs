//! Consumes batches like a training loop, for `bench` and `doctor`.

use std::time::{Duration, Instant};

use warpfeed::{Batches, Result, Stats};

/// Runs a loader for `warmup`, then measures it for `time`. Holds each batch for `step`, like a
/// training step. After each batch but the last, calls `show` with the seconds since the start, and
/// with a function that returns the statistics: since the start, or since the warm-up once it is
/// over.
pub(crate) fn measure<B>(
    batches: &mut Batches<B>,
    warmup: Duration,
    time: Duration,
    step: Duration,
    mut show: impl FnMut(f64, &dyn Fn() -> Stats),
) -> Result<Stats> {
    let (start, mut warm) = (Instant::now(), None);
    for number in 0.. {
        let mut epoch = batches.epoch(number);
        while let Some(batch) = epoch.next() {
            let batch = batch?;
            if !step.is_zero() {
                std::thread::sleep(step);
            }
            drop(batch);
            let now = start.elapsed();
            match &warm {
                None if now >= warmup => warm = Some(epoch.stats()),
                Some(warm) if now >= warmup + time => return Ok(epoch.stats().since(warm)),
                _ => {}
            }
            show(now.as_secs_f64(), &|| warm.as_ref().map_or_else(|| epoch.stats(), |warm| epoch.stats().since(warm)));
        }
    }
    unreachable!("epochs do not end")
}
