use crate::batch::{MakeReclaimer, SlotMemory};
use crate::error::Result;
use crate::sampler::Rank;

/// Allocates page-locked memory for `slots` slots of `bytes` bytes. Also returns a constructor for
/// the reclaimer, which prevents reuse of slots while a device may still be reading them. Fails if
/// there is no driver, if this build does not support any driver, or if a driver call fails.
#[cfg(feature = "cuda")]
pub(crate) fn page_locked(bytes: usize, slots: usize, rank: Rank) -> Result<(Vec<SlotMemory>, MakeReclaimer)> {
    use super::nvidia;
    Ok((nvidia::page_locked(bytes, slots, rank)?, Box::new(nvidia::make_reclaimer)))
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn page_locked(_: usize, _: usize, _: Rank) -> Result<(Vec<SlotMemory>, MakeReclaimer)> {
    Err(crate::error::Error::config("this build does not have the feature \"cuda\"; rebuild with it"))
}
