//! Page-locked memory for batches that stay on the host, from the driver that this build knows.

use crate::batch::{MakeKeeper, SlotMemory};
use crate::error::Result;
use crate::sampler::Rank;

/// Allocates page-locked memory for `slots` slots of `bytes` bytes, with the keeper of slots that a
/// device may still read.
///
/// # Errors
/// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) without a driver, and
/// [`ErrorKind::Config`](crate::ErrorKind::Config) if this build knows none.
#[cfg(feature = "cuda")]
pub(crate) fn page_locked(bytes: usize, slots: usize, rank: Rank) -> Result<(Vec<SlotMemory>, MakeKeeper)> {
    use super::nvidia;
    Ok((nvidia::page_locked(bytes, slots, rank)?, Box::new(nvidia::keeper)))
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn page_locked(_: usize, _: usize, _: Rank) -> Result<(Vec<SlotMemory>, MakeKeeper)> {
    Err(crate::error::Error::config("this build is without the feature \"cuda\""))
}
