//! The arithmetic of PyTorch on 32-bit floats, which the device code repeats in
//! `cuda/kernels/image.cuh`.

/// Computes `a * b + c` with one rounding, as PyTorch's vector loops do. A double holds the product
/// of two floats exactly.
pub(super) fn fused(a: f32, b: f32, c: f32) -> f32 {
    (f64::from(a) * f64::from(b) + f64::from(c)) as f32
}

/// ITU-R BT.601 luma, truncated to a whole number.
pub(super) fn grey(pixel: &[u8; 3]) -> u8 {
    let [r, g, b] = pixel.map(f32::from);
    fused(b, 0.114, fused(g, 0.587, r * 0.2989)) as u8
}

/// torchvision's `_blend`: the first share of `value` plus the second of `other`.
pub(super) fn blend(value: f32, other: f32, [own, rest]: [f32; 2]) -> f32 {
    fused(other, rest, value * own).clamp(0.0, 255.0)
}

/// The shares of an image and of what it is blended with, for a factor of torchvision's.
pub(super) fn shares(factor: f64) -> [f32; 2] {
    [factor as f32, (1.0 - factor) as f32]
}
