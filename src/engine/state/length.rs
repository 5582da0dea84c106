//! The number of batches in an epoch. The sampler may be user code, so it may panic.

use crate::error::{Error, Result, guarded, panicked};
use crate::sampler::Schedule;

/// Returns the number of batches in `epoch`, or an error if the sampler panics.
pub(crate) fn count_batches(schedule: &Schedule, epoch: u64) -> Result<u64> {
    guarded(|| Ok(schedule.num_batches(epoch)))
        .map_err(|e| panicked(e, || format!("the sampler panicked while computing the length of epoch {epoch}")))
}

/// Returns an error if epoch 0 has no batches, or if the sampler panics. Without this check, an
/// epoch without batches would end immediately, without an error message.
pub(crate) fn check_not_empty(schedule: &Schedule) -> Result<()> {
    if count_batches(schedule, 0)? > 0 {
        return Ok(());
    }
    let (samples, world) = (schedule.order().len(0), schedule.rank().world_size);
    let batch_text = format!("of {}", schedule.global_batch())
        + &if world > 1 { format!(" on {world} ranks") } else { String::new() };
    let cause = if samples == 0 {
        "the order has no samples in epoch 0".to_owned()
    } else {
        format!(
            "{samples} samples do not fill one batch {batch_text}, and LastBatch::Drop drops a partial batch; lower \
             batch_size, or use LastBatch::Keep or LastBatch::Pad"
        )
    };
    Err(Error::config(format!("an epoch has no batch: {cause}")))
}
