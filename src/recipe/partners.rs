use crate::error::{Error, Result, guarded, panicked};
use crate::order::{Entry, Order};
use crate::transform::{Augment, TILES, Tiling};

/// The mosaic that a sample becomes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Partners {
    /// The samples whose pictures join that of the sample.
    pub(crate) samples: [u64; TILES - 1],
    pub(crate) tiling: Tiling,
}

/// The mosaic that an entry of `epoch` becomes, or `None` if it becomes none: a function of (seed,
/// epoch, sample) and of `order`. The source has `len` samples.
///
/// # Errors
/// If the order, which may be the user's code, panics or gives a sample that the source lacks.
pub(crate) fn partners(
    augment: &Augment,
    order: &dyn Order,
    (seed, len): (u64, u64),
    (epoch, entry): (u64, &Entry),
) -> Result<Option<Partners>> {
    let augment = augment.at_epoch(epoch);
    if !augment.tiles() {
        return Ok(None);
    }
    let found = guarded(|| {
        let tiling = augment.tiling((seed, entry.variant, entry.sample), order.len(epoch));
        Ok(tiling.map(|tiling| Partners { samples: tiling.partners.map(|at| order.index(epoch, at)), tiling }))
    });
    let found = found.map_err(|e| panicked(e, || format!("the order panicked at a mosaic of epoch {epoch}")))?;
    let outside = found.and_then(|found| found.samples.into_iter().find(|&sample| sample >= len));
    match outside {
        None => Ok(found),
        Some(sample) => Err(Error::config(format!(
            "the order gives sample {sample} for a mosaic of epoch {epoch}; the source has {len}"
        ))),
    }
}
