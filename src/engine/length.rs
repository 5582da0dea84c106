use super::retry::{guarded, panicked};
use crate::error::Result;
use crate::order::Schedule;

/// Number of batches in `epoch`; an error if the order, which may be the user's, panics.
pub(super) fn batches(schedule: &Schedule, epoch: u64) -> Result<u64> {
    guarded(|| Ok(schedule.batches(epoch)))
        .map_err(|e| panicked(e, || format!("the order panicked when asked for the length of epoch {epoch}")))
}
