use serde::{Deserialize, Serialize};

use super::operation::{Operation, check_probability};
use super::registry::SampleEffects;
use super::tint::{Tint, permutation};
use super::tone::Tone;
use crate::decode::Size;
use crate::error::Result;
use crate::sampler::Rng;
use crate::transform::geometry::Interval;

const BRIGHTNESS: Interval = [0.875, 1.125];
const CONTRAST: Interval = [0.5, 1.5];
const SATURATION: Interval = [0.5, 1.5];
const HUE: Interval = [-0.05, 0.05];

/// Applies torchvision's `RandomPhotometricDistort` with its default ranges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhotometricDistort {
    pub(crate) probability: f64,
}

/// The parameters that were drawn for a sample. `None` means that the effect is not applied.
#[derive(Debug, Default)]
struct DistortParams {
    brightness: Option<f64>,
    contrast: Option<f64>,
    saturation: Option<f64>,
    hue: Option<f64>,
    /// Whether the contrast precedes the saturation. If not, it follows the hue.
    is_contrast_first: bool,
    channels: Option<[u32; 3]>,
}

impl DistortParams {
    fn push(&self, effects: &mut SampleEffects) {
        let push_contrast = |effects: &mut SampleEffects| {
            if let Some(factor) = self.contrast {
                effects.push(Tone::contrast(factor));
            }
        };
        if let Some(factor) = self.brightness {
            effects.push(Tone::brightness(factor));
        }
        if self.is_contrast_first {
            push_contrast(effects);
        }
        if let Some(factor) = self.saturation {
            effects.push(Tint::saturation(factor));
        }
        if let Some(turn) = self.hue {
            effects.push(Tint::hue(turn));
        }
        if !self.is_contrast_first {
            push_contrast(effects);
        }
        if let Some(channels) = self.channels {
            effects.push(Tint::permuted(channels));
        }
    }
}

impl Operation for PhotometricDistort {
    fn changes_colors(&self) -> Option<&'static str> {
        Some("photometric_distort")
    }

    fn check(&self) -> Result<()> {
        check_probability("photometric_distort", self.probability)
    }

    fn max_effects(&self) -> usize {
        5
    }

    /// Draws the effects. Each effect draws one number to decide whether to apply it, and then its
    /// parameters if it is applied. Before the permutation of the channels, one number decides
    /// whether the contrast precedes the saturation.
    fn draw(&self, _: Size, rng: &mut Rng, effects: &mut SampleEffects) {
        let mut draw_factor = |[low, high]: Interval| rng.chance(self.probability).then(|| rng.range(low, high));
        let (brightness, contrast) = (draw_factor(BRIGHTNESS), draw_factor(CONTRAST));
        let (saturation, hue) = (draw_factor(SATURATION), draw_factor(HUE));
        let is_contrast_first = rng.chance(0.5);
        let channels = rng.chance(self.probability).then(|| permutation(rng));
        DistortParams { brightness, contrast, saturation, hue, is_contrast_first, channels }.push(effects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::ImageMut;

    fn fixture(name: &str) -> Vec<u8> {
        let path = format!("{}/tests/fixtures/parity/{name}.png", env!("CARGO_MANIFEST_DIR"));
        image::open(path).unwrap().into_rgb8().into_raw()
    }

    #[test]
    fn photometric_distort_matches_torchvision() {
        // The names are from `tests/fixtures/parity/distort.py`.
        for (name, is_contrast_first) in [("before", true), ("after", false)] {
            let params = DistortParams {
                brightness: Some(1.1),
                contrast: Some(0.7),
                saturation: Some(1.4),
                hue: Some(-0.04),
                is_contrast_first,
                channels: Some([2, 0, 1]),
            };
            let (mut ours, theirs) = (fixture("color"), fixture(&format!("distort.{name}")));
            let mut effects = SampleEffects::default();
            params.push(&mut effects);
            effects.run(&mut ImageMut::new(&mut ours, 32, 24));
            let max_difference = ours.iter().zip(&theirs).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            let unequal_values = ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
            assert!(
                max_difference <= 1 && unequal_values * 100 <= ours.len(),
                "{name}: {unequal_values} of {} differ, by up to {max_difference}",
                ours.len()
            );
        }
        assert_ne!(fixture("distort.before"), fixture("distort.after"));
    }

    #[test]
    fn effects_are_applied_independently() {
        let count = |probability: f64| {
            let effects = |sample| {
                let mut effects = SampleEffects::default();
                PhotometricDistort { probability }.draw(Size::new(8, 8), &mut Rng::new(1, 0, sample), &mut effects);
                effects.pixels.len()
            };
            (0..2000).map(effects).sum::<usize>()
        };
        assert_eq!((count(0.0), count(1.0)), (0, 10_000));
        assert!((4800..5200).contains(&count(0.5)), "{}", count(0.5));
    }
}
