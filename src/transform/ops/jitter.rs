use serde::{Deserialize, Serialize};

use super::operation::{Operation, check_probability};
use super::registry::SampleEffects;
use super::tint::Tint;
use super::tone::Tone;
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::transform::geometry::Interval;

/// Changes brightness, contrast, saturation and hue by random amounts and in a random order, like
/// `ColorJitter` in torchvision's transforms v2 for `uint8` tensors.
///
/// The jitter runs after the resize, so its cost does not depend on the size of the source image.
/// Values may differ from torchvision's by one, because torchvision's sums of 32-bit floats may
/// round differently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColorJitter {
    brightness: Option<f64>,
    contrast: Option<f64>,
    saturation: Option<f64>,
    hue: Option<f64>,
    probability: f64,
}

impl Default for ColorJitter {
    fn default() -> Self {
        ColorJitter { brightness: None, contrast: None, saturation: None, hue: None, probability: 1.0 }
    }
}

impl ColorJitter {
    /// Creates a jitter that has no effect. Setters enable effects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the probability that a sample is jittered. The default is 1.
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Sets the range of the brightness factor, which is drawn uniformly from `max(0, 1 - amount)`
    /// to `1 + amount`. The factor 0 makes the image black, and 1 leaves it unchanged.
    #[must_use]
    pub fn brightness(mut self, amount: f64) -> Self {
        self.brightness = Some(amount);
        self
    }

    /// Sets the range of the contrast factor, which is drawn uniformly from `max(0, 1 - amount)` to
    /// `1 + amount`. The factor 0 turns every pixel into the mean gray of the image, and 1 leaves
    /// the image unchanged.
    #[must_use]
    pub fn contrast(mut self, amount: f64) -> Self {
        self.contrast = Some(amount);
        self
    }

    /// Sets the range of the saturation factor, which is drawn uniformly from `max(0, 1 - amount)`
    /// to `1 + amount`. The factor 0 removes all color, and 1 leaves the image unchanged.
    #[must_use]
    pub fn saturation(mut self, amount: f64) -> Self {
        self.saturation = Some(amount);
        self
    }

    /// Sets the range of the hue rotation, which is drawn uniformly from `-amount` to `amount`, as
    /// a fraction of a full turn. `amount` must be at most 0.5. This effect is the slowest of the
    /// four.
    #[must_use]
    pub fn hue(mut self, amount: f64) -> Self {
        self.hue = Some(amount);
        self
    }
}

impl ColorJitter {
    /// Returns the ranges of the brightness, contrast and saturation factors, and of the hue
    /// rotation.
    fn intervals(&self) -> [Option<Interval>; 4] {
        let factor = |amount: Option<f64>| amount.map(|amount| [(1.0 - amount).max(0.0), 1.0 + amount]);
        let hue = self.hue.map(|amount| [-amount, amount]);
        [factor(self.brightness), factor(self.contrast), factor(self.saturation), hue]
    }
}

impl Operation for ColorJitter {
    fn changes_colors(&self) -> Option<&'static str> {
        Some("jitter")
    }

    fn check(&self) -> Result<()> {
        let effects = [("brightness", f64::MAX), ("contrast", f64::MAX), ("saturation", f64::MAX), ("hue", 0.5)];
        for ((name, max), interval) in effects.into_iter().zip(self.intervals()) {
            if let Some([low, high]) = interval
                && !(low <= high && high <= max)
            {
                let limit_text = if max < f64::MAX { format!(" and at most {max}") } else { String::new() };
                let range = format!("{name} range {low:?}..{high:?}");
                return Err(Error::config(format!(
                    "jitter: {range} is invalid: the amount must be finite and not negative{limit_text}"
                )));
            }
        }
        check_probability("jitter", self.probability)
    }

    fn max_effects(&self) -> usize {
        self.intervals().iter().flatten().count()
    }

    /// Draws one number to decide whether to jitter, if the probability is less than 1, then three
    /// numbers for the order of the effects, and one number for each enabled effect.
    fn draw(&self, _: Size, rng: &mut Rng, effects: &mut SampleEffects) {
        if self.probability < 1.0 && !rng.chance(self.probability) {
            return;
        }
        let mut order = [0, 1, 2, 3];
        for last in (1..4).rev() {
            order.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let factors = self.intervals().map(|interval| interval.map(|[low, high]| rng.range(low, high)));
        for effect in order {
            let Some(factor) = factors[effect] else { continue };
            match effect {
                0 => effects.push(Tone::brightness(factor)),
                1 => effects.push(Tone::contrast(factor)),
                2 => effects.push(Tint::saturation(factor)),
                _ => effects.push(Tint::hue(factor)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::effect::Scratch;
    use super::super::registry::AnyPixelEffect;
    use super::*;
    use crate::transform::ImageMut;

    fn fixture(name: &str) -> Vec<u8> {
        let path = format!("{}/tests/fixtures/parity/{name}.png", env!("CARGO_MANIFEST_DIR"));
        image::open(path).unwrap().into_rgb8().into_raw()
    }

    #[test]
    fn each_effect_is_within_one_level_of_torchvision() {
        let effects: [(&str, AnyPixelEffect); 4] = [
            ("brightness", Tone::brightness(1.3).into()),
            ("contrast", Tone::contrast(0.6).into()),
            ("saturation", Tint::saturation(1.7).into()),
            ("hue", Tint::hue(-0.21).into()),
        ];
        for (name, effect) in effects {
            let (mut ours, theirs) = (fixture("color"), fixture(&format!("color.{name}")));
            assert_ne!(ours, theirs);
            effect.run(&mut ImageMut::new(&mut ours, 32, 24), &mut Scratch::default());
            let far_values = ours.iter().zip(&theirs).filter(|(a, b)| a.abs_diff(**b) > 1).count();
            let unequal_values = ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
            assert!(
                far_values == 0 && unequal_values * 100 <= ours.len(),
                "{name}: {unequal_values} of {} off by one, {far_values} by more",
                ours.len()
            );
        }
    }

    #[test]
    fn the_order_and_the_factors_vary() {
        let jitter = ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1);
        jitter.check().unwrap();
        let image = fixture("color");
        let run = |sample| {
            let mut image = image.clone();
            let mut effects = SampleEffects::default();
            jitter.draw(Size::new(32, 24), &mut Rng::new(0, 0, sample), &mut effects);
            effects.run(&mut ImageMut::new(&mut image, 32, 24));
            image
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert!(ColorJitter::new().hue(0.6).check().unwrap_err().cause().contains("hue range -0.6"));
        assert!(ColorJitter::new().brightness(f64::NAN).check().is_err());
    }
}
