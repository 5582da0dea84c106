use serde::{Deserialize, Serialize};

use super::erase::Erase;
use super::noise::Noise;
use super::operation::{Operation, check_probability};
use super::registry::SampleEffects;
use crate::decode::{Rect, Size};
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::transform::geometry::Interval;
use crate::transform::mix::draw_normal;

/// torchvision's `RandomErasing`, applied after normalization. See Zhong et al., "Random Erasing
/// Data Augmentation" (2017).
///
/// Fills a random rectangle with the given probability. The fraction of the image's area that the
/// rectangle covers is drawn uniformly from [`scale`](RandomErasing::scale), and its aspect ratio
/// (height / width) is drawn log-uniformly from [`ratio`](RandomErasing::ratio). A rectangle that
/// is as wide or as high as the image, or larger, is drawn again. If ten rectangles are too large,
/// nothing is filled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default = "RandomErasing::never", deny_unknown_fields)]
pub struct RandomErasing {
    probability: f64,
    scale: Interval,
    ratio: Interval,
    value: [f32; 3],
    fill: Fill,
}

/// Content of the rectangle: `value`, a random color, or noise. The color and the noise have the
/// mean `value` and the given standard deviation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fill {
    Value,
    Color(f32),
    Noise(f32),
}

impl RandomErasing {
    fn never() -> Self {
        Self::new(0.0)
    }

    /// Creates an operation that erases with the given probability. The rectangle is filled with 0:
    /// the mean color of normalized images, or black in a batch of `u8`.
    pub fn new(probability: f64) -> Self {
        RandomErasing { probability, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: [0.0; 3], fill: Fill::Value }
    }

    /// Sets the range of the fraction of the image's area that the rectangle covers. The default is
    /// 0.02 to 0.33.
    #[must_use]
    pub fn scale(mut self, low: f64, high: f64) -> Self {
        self.scale = [low, high];
        self
    }

    /// Sets the range of the rectangle's aspect ratio (height / width). The default is 0.3 to 3.3.
    #[must_use]
    pub fn ratio(mut self, low: f64, high: f64) -> Self {
        self.ratio = [low, high];
        self
    }

    /// Sets the red, green and blue of the rectangle, in the units of [`Erase::value`]. The default
    /// is 0.
    #[must_use]
    pub fn value(mut self, value: [f32; 3]) -> Self {
        self.value = value;
        self
    }

    /// Fills the rectangle with noise. Each channel of each pixel is approximately normally
    /// distributed with the mean [`value`](RandomErasing::value) and the standard deviation
    /// `deviation`. With a value of 0, a deviation of 1 and normalized images, the noise is
    /// distributed approximately like the noise of timm's mode `pixel`.
    #[must_use]
    pub fn noise(mut self, deviation: f32) -> Self {
        self.fill = Fill::Noise(deviation);
        self
    }

    /// Fills the rectangle with a single random color. Each channel is normally distributed with
    /// the mean [`value`](RandomErasing::value) and the standard deviation `deviation`. With a
    /// value of 0, a deviation of 1 and normalized images, the color is distributed like the color
    /// of timm's mode `rand`.
    #[must_use]
    pub fn random_color(mut self, deviation: f32) -> Self {
        self.fill = Fill::Color(deviation);
        self
    }
}

impl Operation for RandomErasing {
    fn changes_values(&self) -> bool {
        true
    }

    fn changes_colors(&self) -> Option<&'static str> {
        Some("erase")
    }

    fn check(&self) -> Result<()> {
        let ([s0, s1], [r0, r1]) = (self.scale, self.ratio);
        check_probability("erase", self.probability)?;
        if !(0.0 <= s0 && s0 <= s1 && s1 <= 1.0) {
            return Err(Error::config(format!("erase: scale is {s0} to {s1}, but must satisfy 0 <= low <= high <= 1")));
        }
        if !(0.0 < r0 && r0 <= r1 && r1.is_finite()) {
            return Err(Error::config(format!("erase: ratio is {r0} to {r1}, but must satisfy 0 < low <= high < inf")));
        }
        match self.fill {
            Fill::Color(deviation) | Fill::Noise(deviation) if !(0.0 <= deviation && deviation.is_finite()) => {
                Err(Error::config(format!("erase: the deviation is {deviation}, but must be finite and not negative")))
            }
            _ => Ok(()),
        }
    }

    /// Draws one number to decide whether to erase, two for each try, and two for the position.
    /// Noise draws one more number, and a random color draws six more.
    fn draw(&self, size: Size, rng: &mut Rng, effects: &mut SampleEffects) {
        if !rng.chance(self.probability) {
            return;
        }
        for _ in 0..10 {
            let area = size.area() as f64 * rng.range(self.scale[0], self.scale[1]);
            let aspect = rng.range(self.ratio[0].ln(), self.ratio[1].ln()).exp();
            let h = (area * aspect).sqrt().round_ties_even();
            let w = (area / aspect).sqrt().round_ties_even();
            if h < f64::from(size.height) && w < f64::from(size.width) {
                let (w, h) = (w as u32, h as u32);
                let y = rng.below(u64::from(size.height - h) + 1) as u32;
                let x = rng.below(u64::from(size.width - w) + 1) as u32;
                let (rect, value) = (Rect::new(x, y, w, h), self.value);
                effects.values.push(match self.fill {
                    Fill::Value => Erase { rect, value }.into(),
                    Fill::Color(deviation) => {
                        Erase { rect, value: value.map(|v| v + deviation * draw_normal(rng) as f32) }.into()
                    }
                    Fill::Noise(deviation) => {
                        let bits = rng.next_u64();
                        Noise { rect, mean: value, deviation, seed: [bits as u32, (bits >> 32) as u32] }.into()
                    }
                });
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry::AnyValueEffect;
    use super::*;

    fn draw_effect(erasing: &RandomErasing, sample: u64) -> Option<AnyValueEffect> {
        erasing.check().unwrap();
        let mut effects = SampleEffects::default();
        erasing.draw(Size::new(40, 30), &mut Rng::new(3, 1, sample), &mut effects);
        effects.values.first().copied()
    }

    #[test]
    fn rectangles_contain_a_value_a_random_color_or_noise() {
        let erasing = RandomErasing::new(0.7).value([0.5, 1.0, -1.0]);
        let (mut colors, mut seeds) = (Vec::new(), Vec::new());
        for sample in 0..400 {
            let Some(AnyValueEffect::Erase(plain)) = draw_effect(&erasing, sample) else {
                assert!(draw_effect(&erasing.clone().noise(1.0), sample).is_none());
                continue;
            };
            assert_eq!(plain.value, [0.5, 1.0, -1.0]);
            let Some(AnyValueEffect::Noise(noise)) = draw_effect(&erasing.clone().noise(2.0), sample) else {
                panic!("no noise")
            };
            assert_eq!((noise.rect, noise.mean, noise.deviation), (plain.rect, plain.value, 2.0));
            seeds.push(noise.seed);
            let Some(AnyValueEffect::Erase(color)) = draw_effect(&erasing.clone().random_color(2.0), sample) else {
                panic!("no color")
            };
            assert_eq!(color.rect, plain.rect);
            colors.push(color.value);
        }
        seeds.sort_unstable();
        seeds.dedup();
        assert!(colors.len() > 200 && seeds.len() == colors.len());
        for channel in 0..3 {
            let z = colors.iter().map(|color| f64::from((color[channel] - [0.5, 1.0, -1.0][channel]) / 2.0));
            let (mean, square) = z.fold((0.0, 0.0), |(mean, square), z| (mean + z, square + z * z));
            let n = colors.len() as f64;
            assert!((mean / n).abs() < 0.25 && (square / n - 1.0).abs() < 0.35, "{mean} {square} of {n}");
        }
    }
}
