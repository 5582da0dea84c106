//! Effects that change the color of each pixel independently of the other pixels.
//!
//! The formulas are torchvision's.
//!
//! Blocks of pixels are split into one array per channel, so that the compiler can vectorize the
//! loops. The hue conversion computes every HSV case, and then selects one without branching.

use super::arithmetic::{BLOCK, PixelBlock, blend, blend_weights, gray};
use super::effect::{PixelEffect, Scratch};
use super::random_effect::random_effect;
use super::vectorize::{fast_floor, level, vectorize};
use crate::sampler::Rng;
use crate::transform::{ImageMut, record};

record! {
    /// Changes the color of each pixel independently.
    pub(crate) struct Tint {
        /// Kind of effect, such as SATURATION.
        kind: u32,
        /// SATURATION: weights of the pixel and of its gray value. HUE: rotation of the hue, in
        /// full turns.
        by: [f32; 2],
        /// PERMUTED: the source channel of each output channel, packed as 2-bit fields, with the
        /// first channel in the lowest bits.
        channels: u32,
    }
}

impl Tint {
    const SATURATION: u32 = 0;
    const HUE: u32 = 1;
    const GRAYSCALE: u32 = 2;
    const PERMUTED: u32 = 3;

    #[cfg(test)]
    pub(crate) fn c_constants() -> String {
        let names = "SATURATION, HUE, GRAYSCALE, PERMUTED";
        assert_eq!((Self::SATURATION, Self::PERMUTED), (0, names.split(',').count() as u32 - 1));
        format!("enum {{ {names} }};\n")
    }

    /// Equals torchvision's `adjust_saturation`, a blend with the gray value.
    pub(super) fn saturation(factor: f64) -> Self {
        Tint { kind: Self::SATURATION, by: blend_weights(factor), channels: 0 }
    }

    /// Equals torchvision's `adjust_hue`.
    pub(super) fn hue(turn: f64) -> Self {
        Tint { kind: Self::HUE, by: [turn as f32, 0.0], channels: 0 }
    }

    /// Equals torchvision's `rgb_to_grayscale` with three channels.
    pub(super) fn grayscale() -> Self {
        Tint { kind: Self::GRAYSCALE, by: [0.0; 2], channels: 0 }
    }

    /// Equals torchvision's `permute_channels`.
    pub(super) fn permuted([r, g, b]: [u32; 3]) -> Self {
        Tint { kind: Self::PERMUTED, by: [0.0; 2], channels: r | g << 2 | b << 4 }
    }
}

/// Draws a permutation of the channels, with two random numbers.
pub(super) fn permutation(rng: &mut Rng) -> [u32; 3] {
    let mut channels = [0, 1, 2];
    for last in (1..3).rev() {
        channels.swap(last, rng.below(last as u64 + 1) as usize);
    }
    channels
}

impl PixelEffect for Tint {
    const DEVICE: Option<&'static str> = Some("tint.cuh");

    fn run(&self, image: &mut ImageMut<'_>, _: &mut Scratch) {
        match self.kind {
            Self::SATURATION => saturate(image.data_mut().as_chunks_mut().0, self.by),
            Self::HUE => rotate_hues(image.data_mut().as_chunks_mut().0, self.by[0]),
            Self::GRAYSCALE => remove_color(image.data_mut().as_chunks_mut().0),
            _ => {
                let source_channels = [0, 2, 4].map(|shift| (self.channels >> shift & 3) as usize);
                image.pixels_mut().for_each(|pixel| *pixel = source_channels.map(|channel| pixel[channel]));
            }
        }
    }
}

vectorize! {
    fn saturate(pixels: &mut [[u8; 3]], weights: [f32; 2]) {
        let (blocks, remainder) = pixels.as_chunks_mut::<BLOCK>();
        for block in blocks {
            let PixelBlock { channels, grays } = PixelBlock::from_pixels(block);
            let mut levels = [[0; BLOCK]; 3];
            for (levels, channel) in levels.iter_mut().zip(&channels) {
                for ((level, &v), &gray) in levels.iter_mut().zip(channel).zip(&grays) {
                    *level = blend(v, gray as f32, weights);
                }
            }
            for (i, pixel) in block.iter_mut().enumerate() {
                *pixel = std::array::from_fn(|channel| levels[channel][i]);
            }
        }
        for pixel in remainder {
            let gray = f32::from(gray(pixel));
            *pixel = pixel.map(|v| blend(f32::from(v), gray, weights));
        }
    }
}

vectorize! {
    fn remove_color(pixels: &mut [[u8; 3]]) {
        let (blocks, remainder) = pixels.as_chunks_mut::<BLOCK>();
        for block in blocks {
            let grays = PixelBlock::from_pixels(block).grays;
            block.iter_mut().zip(grays).for_each(|(pixel, gray)| *pixel = [gray as u8; 3]);
        }
        remainder.iter_mut().for_each(|pixel| *pixel = [gray(pixel); 3]);
    }
}

vectorize! {
    /// Rotates the hue of each pixel. The conversions to HSV and back are torchvision's
    /// `_rgb_to_hsv` and `_hsv_to_rgb`.
    fn rotate_hues(pixels: &mut [[u8; 3]], turn: f32) {
        let (blocks, remainder) = pixels.as_chunks_mut::<BLOCK>();
        for block in blocks {
            rotate_block(block, turn);
        }
        let mut last_block = [[0; 3]; BLOCK];
        last_block[..remainder.len()].copy_from_slice(remainder);
        rotate_block(&mut last_block, turn);
        remainder.copy_from_slice(&last_block[..remainder.len()]);
    }
}

#[inline(always)]
fn rotate_block(block: &mut [[u8; 3]; BLOCK], turn: f32) {
    let mut channels = [[0.0; BLOCK]; 3];
    for (i, pixel) in block.iter().enumerate() {
        channels.iter_mut().zip(pixel).for_each(|(channel, &v)| channel[i] = f32::from(v) / 255.0);
    }
    let [reds, greens, blues] = &channels;
    // These are the maximum channel, the saturation, and six times the hue of each pixel.
    let (mut maxima, mut saturations, mut hues) = ([0.0; BLOCK], [0.0; BLOCK], [0.0; BLOCK]);
    let outputs = maxima.iter_mut().zip(&mut saturations).zip(&mut hues);
    for (((max, saturation), hue), ((&r, &g), &b)) in outputs.zip(reds.iter().zip(greens).zip(blues)) {
        let (largest, min) = (larger(larger(r, g), b), smaller(smaller(r, g), b));
        let range = largest - min;
        let [rc, gc, bc] = [(largest - r) / range, (largest - g) / range, (largest - b) / range];
        let sector = if largest == g { 2.0 + rc - bc } else { 4.0 + gc - rc };
        let sector = if largest == r { bc - gc } else { sector };
        // The subtraction is exact, so the difference equals `positive_hue % 1.0`.
        let positive_hue = sector / 6.0 + 1.0;
        let h = (positive_hue - fast_floor(positive_hue)) + turn;
        (*max, *saturation, *hue) = (largest, range / largest, (h - fast_floor(h)) * 6.0);
    }
    let mut levels = [[0; BLOCK]; 3];
    // In hue sectors 0 to 5, red is `max`, `q`, `p`, `p`, `t`, `max`. Green and blue have the same
    // sequence, shifted by 4 and 2 sectors.
    for (levels, shift) in levels.iter_mut().zip([0.0, 4.0, 2.0]) {
        let inputs = maxima.iter().zip(&saturations).zip(&hues);
        for (out, ((&max, &saturation), &hue)) in levels.iter_mut().zip(inputs) {
            let sextant = fast_floor(hue);
            let f = hue - sextant;
            let p = clamp_to_unit(max * (1.0 - saturation));
            let q = clamp_to_unit(max * (1.0 - saturation * f));
            let t = clamp_to_unit(max * (1.0 - saturation * (1.0 - f)));
            // Rounding can turn a hue just below a full turn into sector 6, which equals sector 0.
            let sector = sextant + shift;
            let sector = if sector >= 6.0 { sector - 6.0 } else { sector };
            let value = if sector == 1.0 { q } else { max };
            let value = if (sector == 2.0) | (sector == 3.0) { p } else { value };
            let value = if sector == 4.0 { t } else { value };
            // torchvision's `to_dtype(uint8, scale=True)` truncates 255.999 times the value.
            *out = level(value * 255.999);
        }
    }
    for (i, pixel) in block.iter_mut().enumerate() {
        let [r, g, b] = *pixel;
        // A gray pixel has no hue, and its computed levels are invalid.
        *pixel = if (r == g) & (g == b) { *pixel } else { std::array::from_fn(|channel| levels[channel][i]) };
    }
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[inline(always)]
fn clamp_to_unit(v: f32) -> f32 {
    smaller(larger(v, 0.0), 1.0)
}

random_effect! {
    /// Converts images to grayscale with the given probability, like torchvision's
    /// `RandomGrayscale`.
    grayscale: Grayscale -> Tint {}
    probability 0.1;
    draw |_, _| Tint::grayscale();
}

random_effect! {
    /// Permutes the color channels with the given probability. With probability 1, this equals
    /// torchvision's `RandomChannelPermutation`.
    permute_channels: PermuteChannels -> Tint {}
    probability 1.0;
    draw |_, rng| Tint::permuted(permutation(rng));
}

#[cfg(test)]
pub(super) mod naive {
    use super::*;
    use crate::decode::Size;
    use crate::transform::ops::effect::NaiveReference;
    use crate::transform::ops::tests::naive::{blended, luma};

    impl NaiveReference for Tint {
        fn naive(&self, image: &[[u8; 3]], _: Size) -> Vec<[u8; 3]> {
            let changed = |pixel: [u8; 3]| match self.kind {
                Self::SATURATION => pixel.map(|v| blended(v, f32::from(luma(pixel)), self.by)),
                Self::HUE => rotate_hue(pixel, self.by[0]),
                Self::GRAYSCALE => [luma(pixel); 3],
                _ => [0, 1, 2].map(|channel| pixel[self.channels as usize / 4_usize.pow(channel) % 4]),
            };
            image.iter().copied().map(changed).collect()
        }
    }

    pub(crate) fn rotate_hue(pixel: [u8; 3], turn: f32) -> [u8; 3] {
        let [r, g, b] = pixel.map(|v| f32::from(v) / 255.0);
        let (max, min) = (r.max(g).max(b), r.min(g).min(b));
        if max == min {
            return pixel;
        }
        let range = max - min;
        let saturation = range / max;
        let [rc, gc, bc] = [(max - r) / range, (max - g) / range, (max - b) / range];
        let sector = if max == r {
            bc - gc
        } else if max == g {
            2.0 + rc - bc
        } else {
            4.0 + gc - rc
        };
        let h = (sector / 6.0 + 1.0) % 1.0 + turn;
        let h6 = (h - h.floor()) * 6.0;
        let sextant = h6.floor();
        let f = h6 - sextant;
        let p = (max * (1.0 - saturation)).clamp(0.0, 1.0);
        let q = (max * (1.0 - saturation * f)).clamp(0.0, 1.0);
        let t = (max * (1.0 - saturation * (1.0 - f))).clamp(0.0, 1.0);
        let turned = match sextant as u32 % 6 {
            0 => [max, t, p],
            1 => [q, max, p],
            2 => [p, max, t],
            3 => [p, q, max],
            4 => [t, p, max],
            _ => [max, p, q],
        };
        turned.map(|v| (v * 255.999) as u8)
    }
}
