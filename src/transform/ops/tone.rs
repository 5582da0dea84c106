//! Effects that map each channel value to a new value. A channel value is called a level.
//!
//! Most effects apply a formula to each level, in loops that vectorize. `contrast` computes the
//! mean first. `autocontrast` and `equalize` compute a histogram, and then replace each level with
//! an entry of a table. Each effect reads the image once or twice, without a copy. The formulas are
//! torchvision's, except that `add` is timm's.

use super::arithmetic::{BLOCK, PixelBlock, blend, blend_weights, gray};
use super::effect::{PixelEffect, Scratch};
use super::random_effect::random_effect;
use super::vectorize::{level, vectorize};
use crate::transform::{ImageMut, record};

record! {
    /// Maps each level to a new level. The mapping may depend on the levels of the whole image.
    pub(crate) struct Tone {
        /// Kind of effect, such as BRIGHTNESS.
        kind: u32,
        /// BRIGHTNESS: the factor. CONTRAST: the weights of the image and of its mean gray.
        /// POSTERIZE: the mask of the bits that are kept. SOLARIZE: the threshold. ADD: the number
        /// that is added, and the lowest level to which nothing is added.
        by: [f32; 2],
    }
}

impl Tone {
    const BRIGHTNESS: u32 = 0;
    const CONTRAST: u32 = 1;
    const POSTERIZE: u32 = 2;
    const SOLARIZE: u32 = 3;
    const ADD: u32 = 4;
    const INVERT: u32 = 5;
    const AUTOCONTRAST: u32 = 6;
    const EQUALIZE: u32 = 7;

    #[cfg(test)]
    pub(crate) fn c_constants() -> String {
        let names = "BRIGHTNESS, CONTRAST, POSTERIZE, SOLARIZE, ADD, INVERT, AUTOCONTRAST, EQUALIZE";
        assert_eq!((Self::BRIGHTNESS, Self::EQUALIZE), (0, names.split(',').count() as u32 - 1));
        format!("enum {{ {names} }};\n")
    }

    /// Equals torchvision's `adjust_brightness`.
    pub(super) fn brightness(factor: f64) -> Self {
        Tone { kind: Self::BRIGHTNESS, by: [factor as f32, 0.0] }
    }

    /// Equals torchvision's `adjust_contrast`, which blends each pixel with the mean gray of the
    /// image.
    pub(super) fn contrast(factor: f64) -> Self {
        Tone { kind: Self::CONTRAST, by: blend_weights(factor) }
    }

    /// Equals torchvision's `posterize`, which keeps the upper `bits` of each level.
    pub(super) fn posterize(bits: u32) -> Self {
        Tone { kind: Self::POSTERIZE, by: [(0xff00_u32 >> bits.min(8) & 0xff) as f32, 0.0] }
    }

    /// Equals torchvision's `solarize`, which inverts levels that are at least `threshold`.
    pub(super) fn solarize(threshold: f64) -> Self {
        Tone { kind: Self::SOLARIZE, by: [threshold as f32, 0.0] }
    }

    /// Equals timm's `solarize_add`, which adds `levels` to all levels below 128.
    pub(super) fn add(levels: u32) -> Self {
        Tone { kind: Self::ADD, by: [levels as f32, 128.0] }
    }

    /// Equals torchvision's `invert`.
    pub(super) fn invert() -> Self {
        Tone { kind: Self::INVERT, by: [0.0; 2] }
    }

    /// Equals torchvision's `autocontrast`, which stretches the levels of each channel to 0 to 255.
    pub(super) fn autocontrast() -> Self {
        Tone { kind: Self::AUTOCONTRAST, by: [0.0; 2] }
    }

    /// Equals torchvision's `equalize`, which makes the histogram of each channel as flat as
    /// possible.
    pub(super) fn equalize() -> Self {
        Tone { kind: Self::EQUALIZE, by: [0.0; 2] }
    }
}

impl PixelEffect for Tone {
    const DEVICE: Option<&'static str> = Some("tone.cuh");

    fn run(&self, image: &mut ImageMut<'_>, _: &mut Scratch) {
        let [a, b] = self.by;
        match self.kind {
            Self::BRIGHTNESS => scale(image.data_mut(), a),
            Self::CONTRAST => {
                let mean = (gray_sum(image.data().as_chunks().0) as f64 / image.size().area() as f64) as f32;
                blend_with(image.data_mut(), mean, self.by);
            }
            Self::POSTERIZE => image.data_mut().iter_mut().for_each(|v| *v &= a as u8),
            Self::SOLARIZE => invert_from(image.data_mut(), a),
            Self::ADD => add_below(image.data_mut(), a, b),
            Self::INVERT => image.data_mut().iter_mut().for_each(|v| *v = !*v),
            Self::AUTOCONTRAST => map_levels(image, histogram(image).each_ref().map(autocontrast_table)),
            _ => map_levels(image, histogram(image).each_ref().map(equalize_table)),
        }
    }
}

vectorize! {
    fn scale(levels: &mut [u8], factor: f32) {
        levels.iter_mut().for_each(|v| *v = level(f32::from(*v) * factor));
    }
}

vectorize! {
    fn blend_with(levels: &mut [u8], other: f32, weights: [f32; 2]) {
        levels.iter_mut().for_each(|v| *v = blend(f32::from(*v), other, weights));
    }
}

vectorize! {
    fn invert_from(levels: &mut [u8], threshold: f32) {
        levels.iter_mut().for_each(|v| *v = if f32::from(*v) >= threshold { !*v } else { *v });
    }
}

vectorize! {
    fn add_below(levels: &mut [u8], added: f32, threshold: f32) {
        for v in levels {
            let old = f32::from(*v);
            *v = if old < threshold { level(old + added) } else { *v };
        }
    }
}

vectorize! {
    fn gray_sum(pixels: &[[u8; 3]]) -> u64 {
        let (blocks, remainder) = pixels.as_chunks::<BLOCK>();
        let mut sum = 0;
        for block in blocks {
            sum += PixelBlock::from_pixels(block).grays.iter().map(|&gray| gray as u64).sum::<u64>();
        }
        sum + remainder.iter().map(|pixel| u64::from(gray(pixel))).sum::<u64>()
    }
}

fn map_levels(image: &mut ImageMut<'_>, [red, green, blue]: [[u8; 256]; 3]) {
    for [r, g, b] in image.pixels_mut() {
        *r = red[usize::from(*r)];
        *g = green[usize::from(*g)];
        *b = blue[usize::from(*b)];
    }
}

fn histogram(image: &ImageMut<'_>) -> [[u32; 256]; 3] {
    let mut counts = [[0; 256]; 3];
    for pixel in image.data().as_chunks::<3>().0 {
        pixel.iter().zip(&mut counts).for_each(|(&v, counts)| counts[usize::from(v)] += 1);
    }
    counts
}

/// Returns the new level for each level of a channel. A channel that has only one level does not
/// change.
fn autocontrast_table(counts: &[u32; 256]) -> [u8; 256] {
    let lowest = counts.iter().position(|&n| n > 0).unwrap_or(0) as f32;
    let highest = counts.iter().rposition(|&n| n > 0).unwrap_or(0) as f32;
    if lowest == highest {
        return std::array::from_fn(|v| v as u8);
    }
    let scale = (highest - lowest) * (1.0 / 255.0) as f32;
    std::array::from_fn(|v| ((v as f32 - lowest) / scale).clamp(0.0, 255.0) as u8)
}

/// Returns the new level for each level of a channel, computed as in Pillow. A channel does not
/// change if fewer than 255 of its pixels are below its maximum level.
fn equalize_table(counts: &[u32; 256]) -> [u8; 256] {
    let highest = counts.iter().rposition(|&n| n > 0).unwrap_or(0);
    let stride = counts[..highest].iter().sum::<u32>() / 255;
    if stride == 0 {
        return std::array::from_fn(|v| v as u8);
    }
    let mut lower_pixels = 0;
    counts.map(|n| {
        let level = ((lower_pixels + stride / 2) / stride).min(255) as u8;
        lower_pixels += n;
        level
    })
}

random_effect! {
    /// Inverts all levels with the given probability, like torchvision's `RandomInvert`.
    invert: Invert -> Tone {}
    probability 0.5;
    draw |_, _| Tone::invert();
}

random_effect! {
    /// Keeps the upper `bits` of each level with the given probability, like torchvision's
    /// `RandomPosterize`.
    posterize: Posterize -> Tone {
        bits: u32 [2, 0, 1, 3, 4, 5, 6, 7, 8];
    }
    probability 0.5;
    refuse |options| (options.bits > 8).then(|| format!("bits is {}, but must be 0 to 8", options.bits));
    draw |options, _| Tone::posterize(options.bits);
}

random_effect! {
    /// Inverts levels of `threshold` or more with the given probability, like torchvision's
    /// `RandomSolarize`.
    solarize: Solarize -> Tone {
        threshold: f64 [64.5, 0.0, 127.5, 128.0, 255.0, 256.0];
    }
    probability 0.5;
    refuse |options| {
        let possible = (0.0..=256.0).contains(&options.threshold);
        (!possible).then(|| format!("threshold is {}, but must be 0 to 256", options.threshold))
    };
    draw |options, _| Tone::solarize(options.threshold);
}

random_effect! {
    /// Spreads the levels evenly with the given probability, like torchvision's `RandomEqualize`.
    equalize: Equalize -> Tone {}
    probability 0.5;
    draw |_, _| Tone::equalize();
}

random_effect! {
    /// Stretches the levels to 0 to 255 with the given probability, like torchvision's
    /// `RandomAutocontrast`.
    autocontrast: Autocontrast -> Tone {}
    probability 0.5;
    draw |_, _| Tone::autocontrast();
}

#[cfg(test)]
mod naive {
    use super::*;
    use crate::decode::Size;
    use crate::transform::ops::effect::NaiveReference;
    use crate::transform::ops::tests::naive::{blended, luma};

    impl NaiveReference for Tone {
        fn naive(&self, image: &[[u8; 3]], _: Size) -> Vec<[u8; 3]> {
            let [a, b] = self.by;
            let sum: u64 = image.iter().map(|pixel| u64::from(luma(*pixel))).sum();
            let mean = (sum as f64 / image.len() as f64) as f32;
            let level = |channel: usize, v: u8| {
                let levels = || image.iter().map(|pixel| pixel[channel]);
                let (lowest, highest) = (levels().min().unwrap(), levels().max().unwrap());
                let stride = levels().filter(|level| *level < highest).count() / 255;
                match self.kind {
                    Self::BRIGHTNESS => (f32::from(v) * a).clamp(0.0, 255.0) as u8,
                    Self::CONTRAST => blended(v, mean, self.by),
                    Self::POSTERIZE => (0..8).filter(|bit| a as u8 >> bit & 1 == 1).map(|bit| v & 1 << bit).sum(),
                    Self::SOLARIZE if f32::from(v) < a => v,
                    Self::SOLARIZE | Self::INVERT => 255 - v,
                    Self::ADD if f32::from(v) < b => v.saturating_add(a as u8),
                    Self::AUTOCONTRAST if lowest < highest => {
                        let scale = f32::from(highest - lowest) * (1.0 / 255.0) as f32;
                        (f32::from(v - lowest) / scale).clamp(0.0, 255.0) as u8
                    }
                    Self::EQUALIZE if stride > 0 => {
                        ((levels().filter(|level| *level < v).count() + stride / 2) / stride).min(255) as u8
                    }
                    _ => v,
                }
            };
            image.iter().map(|pixel| [0, 1, 2].map(|channel| level(channel, pixel[channel]))).collect()
        }
    }
}
