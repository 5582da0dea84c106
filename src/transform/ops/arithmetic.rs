//! Arithmetic on 32-bit floats with PyTorch's rounding. The device code in
//! `device/nvidia/kernels/image.cuh` implements the same arithmetic.

use super::vectorize::{level, truncate_to_level};

/// Computes `a * b + c`, like the fused multiply-add of PyTorch's vector loops. A double represents
/// the product of any two floats exactly. The sum is rounded to a double and then to a float.
#[inline(always)]
pub(super) fn fused(a: f32, b: f32, c: f32) -> f32 {
    (f64::from(a) * f64::from(b) + f64::from(c)) as f32
}

/// Returns the ITU-R BT.601 luma, truncated to an integer.
#[inline(always)]
fn luma([r, g, b]: [f32; 3]) -> i32 {
    truncate_to_level(fused(b, 0.114, fused(g, 0.587, r * 0.2989)))
}

pub(super) fn gray(pixel: &[u8; 3]) -> u8 {
    luma(pixel.map(f32::from)) as u8
}

/// Computes torchvision's `_blend`: `weight * value + rest * other`, clamped and truncated to a
/// byte.
#[inline(always)]
pub(super) fn blend(value: f32, other: f32, [weight, rest]: [f32; 2]) -> u8 {
    level(fused(other, rest, value * weight))
}

/// Number of pixels in a block. The values of a block fill several vectors.
pub(super) const BLOCK: usize = 64;

/// A block of adjacent pixels, with one array per channel and one for gray values.
pub(super) struct PixelBlock {
    pub(super) channels: [[f32; BLOCK]; 3],
    pub(super) grays: [i32; BLOCK],
}

impl PixelBlock {
    #[inline(always)]
    pub(super) fn from_pixels(pixels: &[[u8; 3]; BLOCK]) -> Self {
        let (mut channels, mut grays) = ([[0.0; BLOCK]; 3], [0; BLOCK]);
        for (i, pixel) in pixels.iter().enumerate() {
            channels.iter_mut().zip(pixel).for_each(|(channel, &v)| channel[i] = f32::from(v));
        }
        let [red, green, blue] = &channels;
        for (((gray, &r), &g), &b) in grays.iter_mut().zip(red).zip(green).zip(blue) {
            *gray = luma([r, g, b]);
        }
        PixelBlock { channels, grays }
    }
}

/// Returns the weights of the image and of the other operand in torchvision's `_blend`.
pub(super) fn blend_weights(factor: f64) -> [f32; 2] {
    [factor as f32, (1.0 - factor) as f32]
}
