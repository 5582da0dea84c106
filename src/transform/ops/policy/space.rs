//! The effects that torchvision's policies choose from, and the ranges of their magnitudes.

use super::kind::EffectKind::{self, *};
use crate::decode::Size;
use crate::sampler::Rng;
use crate::transform::ops::arithmetic::fused;
use crate::transform::ops::registry::SampleEffects;
use crate::transform::ops::sharpen::Sharpen;
use crate::transform::ops::tint::Tint;
use crate::transform::ops::tone::Tone;
use crate::transform::ops::warp::{Affine, Sampling, Warp};

pub(super) struct EffectSpace {
    kinds: &'static [EffectKind],
    /// Largest shear, as the tangent of the angle.
    max_shear: f32,
    /// Largest rotation in degrees.
    max_rotation: f32,
    /// Largest change of an enhancement factor, which ranges over 1 ± this number.
    max_factor: f32,
    translate: Translate,
    /// The number of bits that `Posterize` keeps at the lowest level, and the decrease of this
    /// number up to the highest level.
    posterize_bits: (f32, f32),
}

enum Translate {
    Pixels(f32),
    Fraction(f64),
}

const ALL_KINDS: [EffectKind; 14] = [
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
]; // fmt: skip

pub(super) const RAND_AUGMENT: EffectSpace = EffectSpace {
    kinds: &ALL_KINDS,
    max_shear: 0.3,
    max_rotation: 30.0,
    max_factor: 0.9,
    translate: Translate::Fraction(150.0 / 331.0),
    posterize_bits: (8.0, 4.0),
};

pub(super) const TRIVIAL_AUGMENT_WIDE: EffectSpace = EffectSpace {
    kinds: &ALL_KINDS,
    max_shear: 0.99,
    max_rotation: 135.0,
    max_factor: 0.99,
    translate: Translate::Pixels(32.0),
    posterize_bits: (8.0, 6.0),
};

pub(super) const AUGMIX_WITHOUT_COLORS: EffectSpace = EffectSpace {
    kinds: &[ShearX, ShearY, TranslateX, TranslateY, Rotate, Posterize, Solarize, AutoContrast, Equalize],
    translate: Translate::Fraction(1.0 / 3.0),
    posterize_bits: (4.0, 4.0),
    ..RAND_AUGMENT
};

pub(super) const AUGMIX: EffectSpace = EffectSpace {
    kinds: &[
        ShearX,
        ShearY,
        TranslateX,
        TranslateY,
        Rotate,
        Posterize,
        Solarize,
        AutoContrast,
        Equalize,
        Brightness,
        Color,
        Contrast,
        Sharpness,
    ], // fmt: skip
    ..AUGMIX_WITHOUT_COLORS
};

/// Returns element `index` of `torch.linspace(from, to, count)`, computed from the nearer end,
/// because PyTorch rounds that way.
fn linspace(from: f32, to: f32, count: u32, index: u32) -> f32 {
    let stride = (to - from) / (count - 1) as f32;
    if index < count / 2 { fused(stride, index as f32, from) } else { fused(-stride, (count - 1 - index) as f32, to) }
}

impl EffectSpace {
    #[cfg(test)]
    pub(super) fn kinds(&self) -> &'static [EffectKind] {
        self.kinds
    }

    pub(super) fn draw_kind(&self, rng: &mut Rng) -> EffectKind {
        self.kinds[rng.below(self.kinds.len() as u64) as usize]
    }

    /// Returns the magnitude of `kind` at `level`, which must be less than `bins`. Returns 0 if the
    /// kind has no magnitude. Signed magnitudes get a random sign.
    pub(super) fn magnitude(&self, kind: EffectKind, level: u32, bins: u32, output: Size, rng: &mut Rng) -> f64 {
        let up_to = |max: f32| linspace(0.0, max, bins, level);
        let translate = |side: u32| match self.translate {
            Translate::Pixels(max) => up_to(max),
            Translate::Fraction(fraction) => up_to((fraction * f64::from(side)) as f32),
        };
        let magnitude = match kind {
            ShearX | ShearY => up_to(self.max_shear),
            TranslateX => translate(output.width),
            TranslateY => translate(output.height),
            Rotate => up_to(self.max_rotation),
            Brightness | Color | Contrast | Sharpness => up_to(self.max_factor),
            Posterize => {
                let (bits, fewer) = self.posterize_bits;
                return (bits - level as f32 / ((bins - 1) as f32 / fewer)).round_ties_even().into();
            }
            Solarize => return linspace(1.0, 0.0, bins, level).into(),
            _ => return 0.0,
        };
        if rng.chance(0.5) { -f64::from(magnitude) } else { magnitude.into() }
    }
}

/// Adds the effect of torchvision's `_apply_image_or_video_transform`. Adds nothing if the
/// magnitude shows that the image would not change: 0 for a signed magnitude, or 8 bits for
/// `Posterize`.
pub(super) fn push(kind: EffectKind, magnitude: f64, output: Size, sampling: Sampling, effects: &mut SampleEffects) {
    let is_signed = !matches!(kind, Posterize | Solarize | AutoContrast | Equalize | Invert);
    if (is_signed && magnitude == 0.0) || (kind == Posterize && magnitude == 8.0) {
        return;
    }
    let corner = [output.width, output.height].map(|side| -0.5 * f64::from(side));
    let shear =
        |shear: [f64; 2]| Affine { shear: shear.map(|v| v.atan().to_degrees()), center: corner, ..Affine::IDENTITY };
    let affine = match kind {
        ShearX => shear([magnitude, 0.0]),
        ShearY => shear([0.0, magnitude]),
        TranslateX => Affine { translate: [magnitude.trunc(), 0.0], ..Affine::IDENTITY },
        TranslateY => Affine { translate: [0.0, magnitude.trunc()], ..Affine::IDENTITY },
        // The sign differs because torchvision's `rotate` is counterclockwise.
        Rotate => Affine { angle: -magnitude, ..Affine::IDENTITY },
        Brightness => return effects.push(Tone::brightness(1.0 + magnitude)),
        Color => return effects.push(Tint::saturation(1.0 + magnitude)),
        Contrast => return effects.push(Tone::contrast(1.0 + magnitude)),
        Sharpness => return effects.push(Sharpen::by(1.0 + magnitude)),
        Posterize => return effects.push(Tone::posterize(magnitude as u32)),
        Solarize => return effects.push(Tone::solarize(255.0 * magnitude)),
        AutoContrast => return effects.push(Tone::autocontrast()),
        Equalize => return effects.push(Tone::equalize()),
        Invert => return effects.push(Tone::invert()),
        Identity | SolarizeAdd | Desaturate | Blur => return,
    };
    effects.push(Warp::affine(affine, output, sampling));
}
