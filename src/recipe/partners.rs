//! Draws the samples whose images are combined with a sample's image, for a mosaic or for pasting.

use arrayvec::ArrayVec;

use crate::error::{Error, Result, guarded, panicked};
use crate::sampler::{Entry, Sampler};
use crate::transform::{Augment, Join, TILES};

/// The partners of a sample: the other samples that are combined with it into one image.
#[derive(Debug, Clone)]
pub(crate) struct Partners {
    pub(crate) samples: ArrayVec<u64, { TILES - 1 }>,
    pub(crate) join: Join,
}

/// Draws the partners of an entry of `epoch`. Returns `None` if the image of the entry is not
/// combined with other images. `len` is the number of samples of the source.
///
/// For a given augmentation, the positions of the partners in the epoch depend only on the seed,
/// the sample, the variant of its occurrence, and the length of the epoch.
///
/// # Errors
/// If `order`, which may be user code, panics or returns an index that is not less than `len`.
pub(crate) fn draw_partners(
    augment: &Augment,
    order: &dyn Sampler,
    (seed, len): (u64, u64),
    (epoch, entry): (u64, &Entry),
) -> Result<Option<Partners>> {
    let augment = augment.at_epoch(epoch);
    if augment.max_images() == 1 {
        return Ok(None);
    }
    let result = guarded(|| {
        let join = augment.draw_join((seed, entry.variant, entry.sample), order.len(epoch));
        let samples = |join: &Join| join.partners().iter().map(|&position| order.index(epoch, position)).collect();
        Ok(join.map(|join| Partners { samples: samples(&join), join }))
    });
    let partners =
        result.map_err(|e| panicked(e, || format!("the sampler panicked while drawing partners for epoch {epoch}")))?;
    let invalid_sample = partners.iter().flat_map(|group| &group.samples).copied().find(|&sample| sample >= len);
    match invalid_sample {
        None => Ok(partners),
        Some(sample) => Err(Error::config(format!(
            "the sampler returned sample {sample} as a partner in epoch {epoch}, but the source has only {len} samples"
        ))),
    }
}
