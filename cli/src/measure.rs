//! Consumes batches like a training loop, for `bench` and `doctor`.

use std::time::{Duration, Instant};

use warpfeed::{Batches, Result, Stats};

/// Runs a loader for `warmup`, then measures it for `time`. Waits for `step` after the arrival of
/// each batch, like a training step. Returns the statistics since the end of the warm-up.
///
/// After each batch except the last, calls `show` with two arguments: the seconds since the start,
/// and a function that returns statistics. During the warm-up, the function returns the statistics
/// since the start. After the warm-up, it returns the statistics since the end of the warm-up.
pub(crate) fn measure<B>(
    batches: &mut Batches<B>,
    warmup: Duration,
    time: Duration,
    step: Duration,
    mut show: impl FnMut(f64, &dyn Fn() -> Stats),
) -> Result<Stats> {
    let (start, mut warmup_stats) = (Instant::now(), None);
    for epoch_number in 0.. {
        let mut epoch = batches.epoch(epoch_number);
        while let Some(batch) = epoch.next() {
            let batch = batch?;
            if !step.is_zero() {
                std::thread::sleep(step);
            }
            drop(batch);
            let now = start.elapsed();
            match &warmup_stats {
                None if now >= warmup => warmup_stats = Some(epoch.stats()),
                Some(warmup_stats) if now >= warmup + time => return Ok(epoch.stats().since(warmup_stats)),
                _ => {}
            }
            show(now.as_secs_f64(), &|| {
                warmup_stats.as_ref().map_or_else(|| epoch.stats(), |warmup_stats| epoch.stats().since(warmup_stats))
            });
        }
    }
    unreachable!("epochs do not end")
}
