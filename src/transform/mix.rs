use serde::{Deserialize, Serialize};

use crate::decode::{Rect, Size};
use crate::error::{Error, Result};
use crate::sampler::Rng;

/// Mixes adjacent samples of a finished batch, like `MixUp` and `CutMix` in torchvision's
/// transforms v2.
///
/// Sample `i` of a batch of `n` is mixed with sample `(i + n - 1) % n`, as in torchvision, which
/// rolls the batch by one. All samples of a batch have the same weight. Random numbers depend only
/// on the seed, the epoch and the batch, not on the number of workers or on the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default = "Mix::never", deny_unknown_fields)]
pub struct Mix {
    mixup: Option<f64>,
    cutmix: Option<f64>,
    probability: f64,
}

impl Mix {
    fn never() -> Self {
        Mix { mixup: None, cutmix: None, probability: 1.0 }
    }

    /// Computes the weighted sum of two images. The weight is drawn from Beta(`alpha`, `alpha`).
    /// ImageNet recipes use an `alpha` of 0.2. See Zhang et al., "mixup: Beyond Empirical Risk
    /// Minimization" (2017).
    pub fn mixup(alpha: f64) -> Self {
        Mix { mixup: Some(alpha), cutmix: None, probability: 1.0 }
    }

    /// Pastes a rectangle of one image into a different one. The rectangle's fraction of the
    /// image's area is drawn from Beta(`alpha`, `alpha`), before the rectangle is clipped to the
    /// image. Recipes use an `alpha` of 1. See Yun et al., "CutMix: Regularization Strategy to
    /// Train Strong Classifiers with Localizable Features" (2019).
    pub fn cutmix(alpha: f64) -> Self {
        Mix { mixup: None, cutmix: Some(alpha), probability: 1.0 }
    }

    /// Chooses MixUp or CutMix for each batch, with equal probability, like `RandomChoice` in
    /// torchvision's reference training.
    pub fn either(mixup_alpha: f64, cutmix_alpha: f64) -> Self {
        Mix { mixup: Some(mixup_alpha), cutmix: Some(cutmix_alpha), probability: 1.0 }
    }

    /// Sets the probability that a batch is mixed. The default is 1.
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        for (name, alpha) in [("mixup", self.mixup), ("cutmix", self.cutmix)] {
            if let Some(alpha) = alpha
                && !(alpha > 0.0 && alpha.is_finite())
            {
                return Err(Error::config(format!(
                    "mix: the alpha of {name} is {alpha}, but must be a positive finite number"
                )));
            }
        }
        if !(0.0..=1.0).contains(&self.probability) {
            return Err(Error::config(format!("mix: the probability is {}, but must be 0 to 1", self.probability)));
        }
        Ok(())
    }

    /// Returns how to mix batch `batch` of epoch `epoch`, or `None` if the batch is not mixed.
    /// `size` is the size of the images in the batch.
    pub fn draw(&self, seed: u64, epoch: u64, batch: u64, size: Size) -> Option<Mixing> {
        // A different seed makes these numbers independent of the numbers of sample `batch`.
        let mut rng = Rng::new(seed ^ u64::from_le_bytes(*b"mixbatch"), epoch, batch);
        if !rng.chance(self.probability) {
            return None;
        }
        match (self.mixup, self.cutmix) {
            (Some(alpha), None) => Some(Mixing { weight: draw_beta(alpha, &mut rng) as f32, cutmix_area: None }),
            (None, Some(alpha)) => Some(draw_cutmix(alpha, size, &mut rng)),
            (Some(mixup), Some(_)) if rng.chance(0.5) => {
                Some(Mixing { weight: draw_beta(mixup, &mut rng) as f32, cutmix_area: None })
            }
            (Some(_), Some(cutmix)) => Some(draw_cutmix(cutmix, size, &mut rng)),
            (None, None) => None,
        }
    }
}

/// Parameters for mixing the images and labels of one batch. A mixed label assigns `weight` to the
/// sample's own class, and `1 - weight` to the class of the sample that is mixed into it
/// ([`Mixing::partner`]).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixing {
    /// Weight of the sample itself, from 0 to 1. torchvision calls this weight `lam`.
    pub weight: f32,
    /// Rectangle that is copied from the other sample (`CutMix`), or `None` for a weighted sum
    /// (`MixUp`).
    pub cutmix_area: Option<Rect>,
}

impl Mixing {
    /// Returns the index of the sample that is mixed into sample `index` of a batch of `count`
    /// samples. For the first sample, this is the last sample. For any other sample, this is the
    /// previous sample.
    pub fn partner(index: usize, count: usize) -> usize {
        if index == 0 { count - 1 } else { index - 1 }
    }
}

/// Draws the box of torchvision's `CutMix.make_params`: a box around a uniformly drawn center,
/// clipped to the image. The weight is the fraction of the area outside the clipped box.
fn draw_cutmix(alpha: f64, size: Size, rng: &mut Rng) -> Mixing {
    let weight = draw_beta(alpha, rng);
    let (w, h) = (i64::from(size.width), i64::from(size.height));
    let (x, y) = (rng.below(w as u64) as i64, rng.below(h as u64) as i64);
    let r = 0.5 * (1.0 - weight).sqrt();
    let (half_w, half_h) = ((r * w as f64) as i64, (r * h as f64) as i64);
    let (x1, y1) = ((x - half_w).max(0), (y - half_h).max(0));
    let (x2, y2) = ((x + half_w).min(w), (y + half_h).min(h));
    let rect = Rect::new(x1 as u32, y1 as u32, (x2 - x1) as u32, (y2 - y1) as u32);
    Mixing { weight: (1.0 - rect.size().area() as f64 / size.area() as f64) as f32, cutmix_area: Some(rect) }
}

/// Draws from Beta(`alpha`, `alpha`), which is X / (X + Y) for gamma variates X and Y. Gamma
/// variates underflow if `alpha` is tiny, so only their logarithms are used.
fn draw_beta(alpha: f64, rng: &mut Rng) -> f64 {
    let (x, y) = (draw_ln_gamma(alpha, rng), draw_ln_gamma(alpha, rng));
    1.0 / (1.0 + (y - x).exp())
}

/// Draws `count` weights that sum to 1 from a symmetric Dirichlet distribution, by dividing gamma
/// variates by their sum.
pub(super) fn draw_dirichlet(alpha: f64, count: usize, rng: &mut Rng) -> Vec<f64> {
    let logs: Vec<f64> = (0..count).map(|_| draw_ln_gamma(alpha, rng)).collect();
    let max = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logs.iter().map(|log| (log - max).exp()).sum();
    logs.into_iter().map(|log| (log - max).exp() / sum).collect()
}

/// Draws from the standard normal distribution with the Box-Muller transform, using only the
/// cosine.
pub(super) fn draw_normal(rng: &mut Rng) -> f64 {
    // 1 - unit is in (0, 1], where the logarithm is defined.
    (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos()
}

/// Draws the logarithm of a gamma variate with the method of Marsaglia and Tsang, "A simple method
/// for generating gamma variables" (2000). The method multiplies a variate with the shape `alpha +
/// 1` by U^(1 / `alpha`), where U is uniform.
fn draw_ln_gamma(alpha: f64, rng: &mut Rng) -> f64 {
    let d = alpha + 1.0 - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    let boost = (1.0 - rng.unit()).ln() / alpha;
    loop {
        let normal = draw_normal(rng);
        let v = (1.0 + c * normal).powi(3);
        if v > 0.0 && (1.0 - rng.unit()).ln() < 0.5 * normal * normal + d - d * v + d * v.ln() {
            return d.ln() + v.ln() + boost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_have_the_moments_of_beta() {
        for alpha in [0.2, 1.0, 4.0] {
            let n = 40_000;
            let weights: Vec<f64> = (0..n).map(|i| draw_beta(alpha, &mut Rng::new(11, 0, i))).collect();
            let mean = weights.iter().sum::<f64>() / n as f64;
            let variance = weights.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / n as f64;
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 0.01, "alpha {alpha}: mean {mean}");
            assert!((variance / expected - 1.0).abs() < 0.03, "alpha {alpha}: variance {variance}, not {expected}");
        }
        assert!((0..1000).all(|i| (0.0..=1.0).contains(&draw_beta(1e-3, &mut Rng::new(0, 0, i)))));
    }

    #[test]
    fn cutmix_rectangles_fit_and_determine_the_weight() {
        let size = Size::new(31, 17);
        for batch in 0..2000 {
            let mixing = Mix::cutmix(1.0).draw(5, 1, batch, size).unwrap();
            let rect = mixing.cutmix_area.unwrap();
            assert!(rect.x + rect.width <= 31 && rect.y + rect.height <= 17);
            let fraction = 1.0 - rect.size().area() as f32 / 527.0;
            assert!((mixing.weight - fraction).abs() < 1e-6);
        }
    }

    #[test]
    fn either_uses_mixup_and_cutmix_equally_often() {
        let mix = Mix::either(0.2, 1.0).probability(0.5);
        let drawn: Vec<_> = (0..4000).filter_map(|batch| mix.draw(1, 0, batch, Size::new(8, 8))).collect();
        let cuts = drawn.iter().filter(|m| m.cutmix_area.is_some()).count();
        assert!((1880..2120).contains(&drawn.len()), "{}", drawn.len());
        assert!((900..1100).contains(&cuts), "{cuts}");
    }
}
