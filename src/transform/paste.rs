use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::sampler::Rng;

const MAX_MARGIN: u32 = 64;

/// Pastes objects from a randomly drawn sample into the image. See Ghiasi et al., "Simple
/// Copy-Paste is a Strong Data Augmentation Method for Instance Segmentation" (2021). The rules
/// equal `SimpleCopyPaste` in torchvision's reference training.
///
/// The sample that provides the objects is drawn from the samples of the epoch. The
/// [`Augment`](crate::Augment) crops and flips this sample with separate random numbers. If n of
/// its objects remain after the crop, n draws with replacement select the objects to paste. The
/// random numbers depend only on the seed, the epoch and the sample, not on the workers, the ranks
/// or the batch size.
///
/// The objects come from a field of [`Boxes`](crate::field::Boxes) with
/// [masks](crate::field::Boxes::masks).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopyPaste {
    probability: f64,
    margin: u32,
}

impl Default for CopyPaste {
    fn default() -> Self {
        Self::new()
    }
}

impl CopyPaste {
    /// Creates a step that pastes objects into every image, with a margin of 2 pixels.
    pub fn new() -> Self {
        CopyPaste { probability: 1.0, margin: 2 }
    }

    /// Sets the probability that objects are pasted into a sample's image. The default is 1.
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Sets the width of the margin around the masks, in pixels, that is pasted together with the
    /// objects. The default is 2, and the maximum is 64.
    ///
    /// The default equals torchvision's `blending=True`, which blurs a boolean mask with a 5 by 5
    /// kernel and thereby sets every pixel within 2 pixels of the mask. A margin of 0 equals
    /// `blending=False`.
    #[must_use]
    pub fn margin(mut self, pixels: u32) -> Self {
        self.margin = pixels;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let CopyPaste { probability, margin } = self;
        if !(0.0..=1.0).contains(probability) {
            return Err(Error::config(format!("copy_paste: the probability is {probability}, but must be 0 to 1")));
        }
        if *margin > MAX_MARGIN {
            return Err(Error::config(format!(
                "copy_paste: the margin is {margin} pixels, but must be at most {MAX_MARGIN}"
            )));
        }
        Ok(())
    }

    /// Draws the sample that provides the objects, or returns `None` if nothing is pasted. The
    /// first argument is the seed, the variant and the index of the sample that the objects are
    /// pasted into. `len` is the number of samples in the epoch.
    pub(super) fn draw(&self, (seed, variant, sample): (u64, u64, u64), len: u64) -> Option<Pasting> {
        // With a separate generator, copy-paste does not change the other random numbers of the
        // sample.
        let mut rng = Rng::new(seed ^ u64::from_le_bytes(*b"pastings"), variant, sample);
        if len == 0 || !rng.chance(self.probability) {
            return None;
        }
        Some(Pasting { partner: [rng.below(len)], margin: self.margin })
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pasting {
    /// Position, within the epoch, of the sample that provides the objects.
    pub(crate) partner: [u64; 1],
    pub(crate) margin: u32,
}

impl Pasting {
    /// Draws torchvision's `unique(randint(0, count, (count,)))`, where `count` is the number of
    /// objects to choose from. `rng` is the generator of the sample that the objects are pasted
    /// into.
    pub(crate) fn choose_objects(count: usize, rng: &Rng, out: &mut Vec<usize>) {
        let mut rng = rng.named("pasted objects");
        out.clear();
        out.extend((0..count).map(|_| rng.below(count as u64) as usize));
        out.sort_unstable();
        out.dedup();
    }

    /// Returns the generator that crops and flips the sample that provides the objects.
    pub(crate) fn partner_rng(rng: &Rng) -> Rng {
        rng.named("pasted image")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_chosen_like_in_torchvision() {
        let some = CopyPaste::new().probability(0.25);
        let pastes: Vec<_> = (0..8000).filter_map(|sample| some.draw((7, 3, sample), 1000)).collect();
        assert!(
            (1850..2150).contains(&pastes.len()),
            "objects are pasted into {} of 8000 samples: expected about 2000",
            pastes.len()
        );
        let mean = pastes.iter().map(|pasting| pasting.partner[0] as f64).sum::<f64>() / pastes.len() as f64;
        assert!((mean - 499.5).abs() < 25.0 && pastes.iter().all(|pasting| pasting.partner[0] < 1000));
        assert!(some.draw((7, 3, 0), 0).is_none());
        // Each of n objects is not chosen with probability (1 - 1/n)^n.
        let (mut chosen, mut counts) = (Vec::new(), [0; 4]);
        for sample in 0..4000 {
            Pasting::choose_objects(4, &Rng::new(1, 2, sample), &mut chosen);
            assert!(!chosen.is_empty() && chosen.is_sorted_by(|a, b| a < b));
            chosen.iter().for_each(|&object| counts[object] += 1);
        }
        let expected = 4000.0 * (1.0 - 0.75_f64.powi(4));
        assert!(counts.iter().all(|&count| (f64::from(count) - expected).abs() < 150.0), "{counts:?} {expected}");
        Pasting::choose_objects(0, &Rng::new(1, 2, 3), &mut chosen);
        assert!(chosen.is_empty());
    }
}
