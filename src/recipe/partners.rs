use arrayvec::ArrayVec;

use crate::error::{Error, Result, guarded, panicked};
use crate::sampler::{Entry, Sampler};
use crate::transform::{Augment, Join, TILES};

/// The other samples that a sample's image shows.
#[derive(Debug, Clone)]
pub(crate) struct Partners {
    /// The samples whose images join that of the sample.
    pub(crate) samples: ArrayVec<u64, { TILES - 1 }>,
    pub(crate) join: Join,
}

/// The other samples that the image of an entry of `epoch` shows, or `None` if it shows none: a
/// function of (seed, epoch, sample) and of `order`. The source has `len` samples.
///
/// # Errors
/// If the order, which may be the user's code, panics or gives a sample that the source lacks.
pub(crate) fn partners(
    augment: &Augment,
    order: &dyn Sampler,
    (seed, len): (u64, u64),
    (epoch, entry): (u64, &Entry),
) -> Result<Option<Partners>> {
    let augment = augment.at_epoch(epoch);
    if augment.max_images() == 1 {
        return Ok(None);
    }
    let found = guarded(|| {
        let join = augment.join((seed, entry.variant, entry.sample), order.len(epoch));
        let samples = |join: &Join| join.partners().iter().map(|&at| order.index(epoch, at)).collect();
        Ok(join.map(|join| Partners { samples: samples(&join), join }))
    });
    let found = found.map_err(|e| panicked(e, || format!("the order panicked at a partner of epoch {epoch}")))?;
    let outside = found.iter().flat_map(|found| &found.samples).copied().find(|&sample| sample >= len);
    match outside {
        None => Ok(found),
        Some(sample) => Err(Error::config(format!(
            "the order gives sample {sample} as a partner in epoch {epoch}; the source has {len}"
        ))),
    }
}
