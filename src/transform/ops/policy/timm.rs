//! Parses timm's policy strings, and draws their effects as in `timm/data/auto_augment.py`.

use super::kind::EffectKind::{self, *};
use super::kind::OnEffect;
use super::tables::{self, Table};
use crate::decode::Size;
use crate::sampler::Rng;
use crate::transform::mix::draw_normal;
use crate::transform::ops::blur::{Blur as Blurred, MAX_RADIUS};
use crate::transform::ops::registry::MAX_PIXEL_EFFECTS;
use crate::transform::ops::registry::SampleEffects;
use crate::transform::ops::sharpen::Sharpen;
use crate::transform::ops::tint::Tint;
use crate::transform::ops::tone::Tone;
use crate::transform::ops::warp::{Affine, Sampling, Warp};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TimmPolicy {
    effects: Effects,
    magnitude: f64,
    /// Standard deviation of the magnitude. If it is infinite, the magnitude is drawn uniformly
    /// from 0 to the mean.
    deviation: f64,
    /// Maximum magnitude. Larger magnitudes are clamped to it.
    max_magnitude: f64,
    /// If true, no effect becomes weaker as the magnitude grows. If false, some effects become
    /// weaker.
    is_increasing: bool,
    /// For AugMix only.
    pub(super) mix: Option<Mixture>,
}

/// The chains of AugMix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mixture {
    pub(super) chains: u32,
    /// Number of effects per chain, or `None` to draw it for each chain.
    pub(super) depth: Option<u32>,
    /// Parameter of the distribution of the weights.
    pub(super) alpha: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Effects {
    /// Draws `number` kinds from a list of kinds and weights, and applies each of the drawn kinds
    /// with probability `probability`. If `is_weighted` is true, no kind is drawn twice.
    Choice {
        kinds: &'static [(EffectKind, f64)],
        is_weighted: bool,
        number: u32,
        probability: f64,
    },
    Pairs(&'static Table, PosterizeBits),
    /// Draws one of the three effects of 3-Augment ("DeiT III").
    ThreeAugment,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum PosterizeBits {
    /// Keeps 0 to 4 bits if the magnitude is at most 10. The number grows with the magnitude, or
    /// shrinks to 0 if `TimmPolicy::is_increasing` is set. If the number grows, larger magnitudes
    /// can keep more than 4 bits.
    Standard,
    /// Keeps 4 to 8 bits. The number grows with the magnitude.
    Original,
    /// Keeps 4 to 0 bits. The number shrinks as the magnitude grows.
    Increasing,
}

/// timm's `_RAND_TRANSFORMS`.
const RAND_TRANSFORMS: [(EffectKind, f64); 15] = [
    (AutoContrast, 1.0),
    (Equalize, 1.0),
    (Invert, 1.0),
    (Rotate, 1.0),
    (Posterize, 1.0),
    (Solarize, 1.0),
    (SolarizeAdd, 1.0),
    (Color, 1.0),
    (Contrast, 1.0),
    (Brightness, 1.0),
    (Sharpness, 1.0),
    (ShearX, 1.0),
    (ShearY, 1.0),
    (TranslateX, 1.0),
    (TranslateY, 1.0),
]; // fmt: skip

/// timm's `_RAND_3A`.
const THREE_AUGMENT: [(EffectKind, f64); 3] = [(Solarize, 1.0), (Desaturate, 1.0), (Blur, 1.0)];

/// timm's `_RAND_WEIGHTED_3A`.
const WEIGHTED_THREE_AUGMENT: [(EffectKind, f64); 14] = [
    (Solarize, 6.0),
    (Desaturate, 6.0),
    (Blur, 6.0),
    (Rotate, 3.0),
    (ShearX, 2.0),
    (ShearY, 2.0),
    (Posterize, 1.0),
    (AutoContrast, 1.0),
    (Color, 1.0),
    (Sharpness, 1.0),
    (Contrast, 1.0),
    (Brightness, 1.0),
    (Equalize, 1.0),
    (Invert, 1.0),
]; // fmt: skip

/// timm's `_RAND_WEIGHTED_0`.
const WEIGHTED_TRANSFORMS: [(EffectKind, f64); 15] = [
    (Rotate, 3.0),
    (ShearX, 2.0),
    (ShearY, 2.0),
    (TranslateX, 1.0),
    (TranslateY, 1.0),
    (Color, 0.25),
    (Sharpness, 0.25),
    (AutoContrast, 0.25),
    (Solarize, 0.05),
    (SolarizeAdd, 0.05),
    (Contrast, 0.05),
    (Brightness, 0.05),
    (Equalize, 0.05),
    (Posterize, 0.05),
    (Invert, 0.05),
]; // fmt: skip

/// timm's `_AUGMIX_TRANSFORMS`.
const AUGMIX_TRANSFORMS: [(EffectKind, f64); 13] = [
    (AutoContrast, 1.0),
    (Color, 1.0),
    (Contrast, 1.0),
    (Brightness, 1.0),
    (Sharpness, 1.0),
    (Equalize, 1.0),
    (Rotate, 1.0),
    (Posterize, 1.0),
    (Solarize, 1.0),
    (ShearX, 1.0),
    (ShearY, 1.0),
    (TranslateX, 1.0),
    (TranslateY, 1.0),
]; // fmt: skip

fn split_section(text: &str) -> Result<(&str, &str), String> {
    let digits = text.find(|c: char| c.is_ascii_digit()).ok_or_else(|| format!("section {text:?} has no number"))?;
    Ok(text.split_at(digits))
}

fn parse_number(section: &str, text: &str, max: f64) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=max).contains(&value) => Ok(value),
        _ => Err(format!("section {section:?}: expected a number from 0 to {max}, found {text:?}")),
    }
}

fn parse_integer(section: &str, text: &str, max: u32) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(value) if value <= max => Ok(value),
        _ => Err(format!("section {section:?}: expected an integer from 0 to {max}, found {text:?}")),
    }
}

impl TimmPolicy {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut sections = text.split('-');
        let pairs = |table, bits| TimmPolicy { effects: Effects::Pairs(table, bits), ..TimmPolicy::DEFAULT };
        let mut policy = match sections.next().unwrap_or_default() {
            "rand" => return Self::parse_rand(sections),
            "augmix" => return Self::parse_augmix(sections),
            "original" => pairs(&tables::IMAGENET, PosterizeBits::Original),
            "originalr" => pairs(&tables::IMAGENET, PosterizeBits::Increasing),
            "v0" => pairs(&tables::V0, PosterizeBits::Standard),
            "v0r" => pairs(&tables::V0, PosterizeBits::Increasing),
            "3a" => TimmPolicy { effects: Effects::ThreeAugment, ..TimmPolicy::DEFAULT },
            other => {
                return Err(format!(
                    "unknown policy {other:?}: expected rand, augmix, original, originalr, v0, v0r or 3a"
                ));
            }
        };
        for section in sections {
            match split_section(section)? {
                ("mstd", value) => policy.deviation = parse_number(section, value, f64::INFINITY)?,
                _ => return Err(format!("unknown section {section:?}: expected mstd")),
            }
        }
        Ok(policy)
    }

    const DEFAULT: TimmPolicy = TimmPolicy {
        effects: Effects::ThreeAugment,
        magnitude: 10.0,
        deviation: 0.0,
        max_magnitude: 10.0,
        is_increasing: false,
        mix: None,
    };

    fn parse_rand<'a>(sections: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut policy = TimmPolicy::DEFAULT;
        let (mut kinds, mut is_weighted): (&[_], _) = (&RAND_TRANSFORMS, false);
        let (mut effects, mut probability, mut forces_increasing) = (2, 0.5, false);
        for section in sections {
            if let Some(set) = section.strip_prefix('t') {
                (kinds, is_weighted) = match set {
                    "weights" => (&WEIGHTED_TRANSFORMS[..], true),
                    "3a" => (&THREE_AUGMENT[..], false),
                    "3aw" => (&WEIGHTED_THREE_AUGMENT[..], true),
                    _ => return Err(format!("unknown set {set:?}: expected weights, 3a or 3aw")),
                };
                forces_increasing = true;
                continue;
            }
            match split_section(section)? {
                ("m", value) => policy.magnitude = parse_integer(section, value, 100)?.into(),
                ("n", value) => effects = parse_integer(section, value, MAX_PIXEL_EFFECTS as u32)?,
                ("p", value) => probability = parse_number(section, value, 1.0)?,
                ("mstd", value) => {
                    policy.deviation = parse_number(section, value, f64::INFINITY)?;
                    if policy.deviation > 100.0 {
                        policy.deviation = f64::INFINITY;
                    }
                }
                ("mmax", value) => policy.max_magnitude = parse_integer(section, value, 100)?.into(),
                ("inc", "1") => policy.is_increasing = true,
                // timm treats every value as true, even 0.
                ("inc", _) => {
                    return Err(format!(
                        "section {section:?}: timm treats every value like inc1; to turn inc off, omit the section"
                    ));
                }
                _ => {
                    return Err(format!("unknown section {section:?}: expected m, n, p, t, mstd, mmax or inc"));
                }
            }
        }
        if is_weighted && effects as usize > kinds.len() {
            return Err(format!("{effects} different effects requested, but the set has only {}", kinds.len()));
        }
        // timm treats `mmax0` as if the section `mmax` were missing.
        policy.max_magnitude = if policy.max_magnitude == 0.0 { 10.0 } else { policy.max_magnitude };
        policy.is_increasing |= forces_increasing;
        policy.effects = Effects::Choice { kinds, is_weighted, number: effects, probability };
        Ok(policy)
    }

    fn parse_augmix<'a>(sections: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut policy =
            TimmPolicy { magnitude: 3.0, deviation: f64::INFINITY, is_increasing: true, ..TimmPolicy::DEFAULT };
        let (mut chains, mut depth, mut alpha) = (3, None, 1.0);
        for section in sections {
            match split_section(section)? {
                ("m", value) => policy.magnitude = parse_integer(section, value, 100)?.into(),
                ("w", value) => chains = parse_integer(section, value, MAX_PIXEL_EFFECTS as u32)?.max(1),
                ("d", value) => {
                    depth = Some(parse_integer(section, value, MAX_PIXEL_EFFECTS as u32)?).filter(|&depth| depth > 0)
                }
                ("a", value) => alpha = parse_number(section, value, 1000.0)?.max(f64::MIN_POSITIVE),
                ("mstd", value) => policy.deviation = parse_number(section, value, f64::INFINITY)?,
                // timm treats every value as true, so b0 means b1.
                ("b", _) => return Err(format!("section {section:?}: blended mixtures are not supported")),
                _ => return Err(format!("unknown section {section:?}: expected m, w, d, a or mstd")),
            }
        }
        policy.effects = Effects::Choice { kinds: &AUGMIX_TRANSFORMS, is_weighted: false, number: 1, probability: 1.0 };
        policy.mix = Some(Mixture { chains, depth, alpha });
        Ok(policy)
    }

    /// Returns the maximum number of effects per sample. Must not be called for AugMix.
    pub(super) fn max_effects(&self) -> usize {
        match self.effects {
            Effects::Choice { number, .. } => number as usize,
            Effects::Pairs(..) => 2,
            Effects::ThreeAugment => 1,
        }
    }

    /// Draws the effects of a sample, and passes them to `on_effect`. For AugMix, draws one effect
    /// of a chain.
    pub(super) fn draw_effects(&self, rng: &mut Rng, on_effect: &mut OnEffect<'_>) {
        match self.effects {
            Effects::Choice { kinds, is_weighted, number, probability } => {
                let mut weights: arrayvec::ArrayVec<f64, 16> = kinds.iter().map(|(_, weight)| *weight).collect();
                let mut drawn_kinds = arrayvec::ArrayVec::<EffectKind, MAX_PIXEL_EFFECTS>::new();
                for _ in 0..number {
                    let mut remaining = rng.unit() * weights.iter().sum::<f64>();
                    let drawn_index = weights.iter().position(|weight| {
                        remaining -= weight;
                        remaining < 0.0
                    });
                    // If no kind is found because of rounding errors, use the last one with a
                    // positive weight.
                    let index = drawn_index.or(weights.iter().rposition(|&weight| weight > 0.0)).unwrap_or(0);
                    drawn_kinds.push(kinds[index].0);
                    if is_weighted {
                        weights[index] = 0.0;
                    }
                }
                for kind in drawn_kinds {
                    if rng.chance(probability) {
                        self.draw_effect(kind, self.magnitude, PosterizeBits::Standard, rng, on_effect);
                    }
                }
            }
            Effects::Pairs(table, bits) => {
                for (kind, probability, magnitude) in table[rng.below(25) as usize] {
                    if rng.chance(probability) {
                        self.draw_effect(kind, magnitude.into(), bits, rng, on_effect);
                    }
                }
            }
            Effects::ThreeAugment => {
                let (kind, magnitude) = [(Solarize, 5.0), (Desaturate, 10.0), (Blur, 10.0)][rng.below(3) as usize];
                self.draw_effect(kind, magnitude, PosterizeBits::Standard, rng, on_effect);
            }
        }
    }

    fn draw_effect(
        &self,
        kind: EffectKind,
        mean: f64,
        bits: PosterizeBits,
        rng: &mut Rng,
        on_effect: &mut OnEffect<'_>,
    ) {
        let drawn_level = if self.deviation == f64::INFINITY {
            rng.range(0.0, mean)
        } else if self.deviation > 0.0 {
            mean + self.deviation * draw_normal(rng)
        } else {
            mean
        };
        let level = drawn_level.clamp(0.0, self.max_magnitude);
        let magnitude = match kind {
            Blur if self.effects == Effects::ThreeAugment => rng.range(0.1, 2.0 * (level / 10.0).min(1.0)),
            Rotate | ShearX | ShearY | TranslateX | TranslateY => {
                self.argument(kind, level, bits, if rng.chance(0.5) { -1.0 } else { 1.0 })
            }
            Brightness | Color | Contrast | Sharpness if self.is_increasing => {
                self.argument(kind, level, bits, if rng.chance(0.5) { -1.0 } else { 1.0 })
            }
            _ => self.argument(kind, level, bits, 1.0),
        };
        on_effect(kind, magnitude);
    }

    /// Converts a level to an argument, like timm's `LEVEL_TO_ARG`, with two exceptions: the
    /// argument of `Desaturate` is the fraction of the saturation that remains, and the argument of
    /// `Posterize` is never negative. `sign` (1 or -1) is the direction of effects that have two
    /// directions.
    fn argument(&self, kind: EffectKind, level: f64, bits: PosterizeBits, sign: f64) -> f64 {
        let level = level / 10.0;
        match kind {
            Rotate => sign * level * 30.0,
            ShearX | ShearY => sign * level * 0.3,
            TranslateX | TranslateY => sign * level * 0.45,
            Brightness | Color | Contrast | Sharpness if self.is_increasing => (1.0 + sign * level * 0.9).max(0.1),
            Brightness | Color | Contrast | Sharpness => level * 1.8 + 0.1,
            Posterize if bits == PosterizeBits::Original => (level * 4.0).trunc() + 4.0,
            Posterize if bits == PosterizeBits::Increasing || self.is_increasing => {
                (4.0 - (level * 4.0).trunc()).max(0.0)
            }
            Posterize => (level * 4.0).trunc(),
            Solarize if self.is_increasing => 256.0 - (level * 256.0).trunc().min(256.0),
            Solarize => (level * 256.0).trunc().min(256.0),
            SolarizeAdd => (level * 110.0).trunc().min(128.0),
            Desaturate => 1.0 - (0.5 + 0.5 * level).clamp(0.5, 1.0),
            Blur => (0.1 + 1.9 * level).clamp(0.1, 2.0),
            Identity | AutoContrast | Equalize | Invert => 0.0,
        }
    }
}

/// Adds timm's effect for `kind`. Pixel values are rounded as in torchvision.
pub(super) fn push(kind: EffectKind, magnitude: f64, output: Size, sampling: Sampling, effects: &mut SampleEffects) {
    let (width, height) = (f64::from(output.width), f64::from(output.height));
    let corner = [-0.5 * width, -0.5 * height];
    let shear =
        |shear: [f64; 2]| Affine { shear: shear.map(|v| v.atan().to_degrees()), center: corner, ..Affine::IDENTITY };
    let affine = match kind {
        ShearX => shear([magnitude, 0.0]),
        ShearY => shear([0.0, magnitude]),
        TranslateX => Affine { translate: [-magnitude * width, 0.0], ..Affine::IDENTITY },
        TranslateY => Affine { translate: [0.0, -magnitude * height], ..Affine::IDENTITY },
        Rotate => Affine { angle: -magnitude, ..Affine::IDENTITY },
        Brightness => return effects.push(Tone::brightness(magnitude)),
        Color | Desaturate => return effects.push(Tint::saturation(magnitude)),
        Contrast => return effects.push(Tone::contrast(magnitude)),
        Sharpness => return effects.push(Sharpen::by(magnitude)),
        Posterize => return effects.push(Tone::posterize(magnitude as u32)),
        Solarize => return effects.push(Tone::solarize(magnitude)),
        SolarizeAdd => return effects.push(Tone::add(magnitude as u32)),
        AutoContrast => return effects.push(Tone::autocontrast()),
        Equalize => return effects.push(Tone::equalize()),
        Invert => return effects.push(Tone::invert()),
        Blur => {
            // The kernel extends three standard deviations to each side.
            let radius = ((3.0 * magnitude).ceil() as u32).min(MAX_RADIUS);
            return effects.push(Blurred::new(2 * radius + 1, magnitude));
        }
        Identity => return,
    };
    effects.push(Warp::affine(affine, output, sampling));
}

#[cfg(test)]
pub(super) fn argument_of(kind: EffectKind, level: f64, is_increasing: bool, is_original: bool) -> f64 {
    let bits = if is_original { PosterizeBits::Original } else { PosterizeBits::Standard };
    TimmPolicy { is_increasing, ..TimmPolicy::DEFAULT }.argument(kind, level, bits, 1.0)
}
