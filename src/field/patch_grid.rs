//! Sizes of images that are divided into patches.
//!
//! [`Sizing::Pixels`] is `smart_resize` of Qwen2-VL, and [`Sizing::Patches`] is
//! `get_image_size_for_max_num_patches` of SigLIP 2. Both use 64-bit floats and the operation order
//! of the originals, so that they return the same sizes.

use crate::decode::Size;

/// Maximum ratio of the longer side to the shorter side, as in Qwen2-VL.
pub(super) const MAX_ASPECT: u32 = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sizing {
    /// Both sides are multiples of `factor`. The number of pixels is from `min` to `max`, unless
    /// the rounding of the sides prevents it.
    Pixels { factor: u32, min: u64, max: u64 },
    /// Both sides are multiples of `patch`, and the image has at most `max` patches.
    Patches { patch: u32, max: u32 },
}

impl Sizing {
    /// Returns the size to which an image is resized, or `None` if the aspect ratio is too large.
    /// [`MAX_ASPECT`] applies only to [`Sizing::Pixels`].
    pub(super) fn size(self, image: Size) -> Option<Size> {
        let (height, width) = (f64::from(image.height), f64::from(image.width));
        match self {
            Sizing::Pixels { factor, min: min_pixels, max: max_pixels } => {
                if height.max(width) / height.min(width) > f64::from(MAX_ASPECT) {
                    return None;
                }
                let (factor, min_pixels, max_pixels) = (f64::from(factor), min_pixels as f64, max_pixels as f64);
                let sides = [height, width];
                let rounded = sides.map(|side| (side / factor).round_ties_even() * factor);
                let [height, width] = if rounded[0] * rounded[1] > max_pixels {
                    let beta = (height * width / max_pixels).sqrt();
                    sides.map(|side| factor.max((side / beta / factor).floor() * factor))
                } else if rounded[0] * rounded[1] < min_pixels {
                    let beta = (min_pixels / (height * width)).sqrt();
                    sides.map(|side| (side * beta / factor).ceil() * factor)
                } else {
                    rounded
                };
                Some(Size::new(width as u32, height as u32)).filter(|resized| resized.area() > 0)
            }
            Sizing::Patches { patch, max: max_patches } => {
                const EPS: f64 = 1e-5;
                let side = f64::from(patch);
                let scaled = |scale: f64, length: f64| ((length * scale / side).ceil() * side).max(side);
                let (mut low, mut high) = (EPS / 10.0, 100.0);
                while high - low >= EPS {
                    let scale = (low + high) / 2.0;
                    let patches = (scaled(scale, height) / side) * (scaled(scale, width) / side);
                    if patches <= f64::from(max_patches) {
                        low = scale;
                    } else {
                        high = scale;
                    }
                }
                let resized = Size::new(scaled(low, width) as u32, scaled(low, height) as u32);
                Some(resized).filter(|resized| resized.area() <= self.max_resized_pixels())
            }
        }
    }

    /// Returns an upper bound on the number of pixels of every [`size`](Sizing::size).
    pub(super) fn max_resized_pixels(self) -> u64 {
        match self {
            Sizing::Pixels { factor, min: min_pixels, max: max_pixels } => {
                let (factor, aspect) = (u64::from(factor), f64::from(MAX_ASPECT));
                let max_narrow_pixels = factor * ((max_pixels as f64 * aspect).sqrt().floor() as u64);
                // Rounding up enlarges each side by less than one factor.
                let sides = (min_pixels as f64).sqrt() * (aspect.sqrt() + 1.0 / aspect.sqrt());
                let max_enlarged_pixels = min_pixels + factor * (sides.ceil() as u64 + 1) + factor * factor;
                max_pixels.max(max_narrow_pixels).max(max_enlarged_pixels)
            }
            Sizing::Patches { patch, max: max_patches } => u64::from(patch) * u64::from(patch) * u64::from(max_patches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rng;

    /// Image sizes (width, height), each with four results of `transformers`:
    /// 1. `smart_resize` with the default limits of Qwen2-VL,
    /// 2. `smart_resize` with 4 to 256 merged blocks,
    /// 3. `get_image_size_for_max_num_patches` with 256 patches of 16 pixels,
    /// 4. the same with 64 patches of 14 pixels.
    const SIZES: [(Pair, [Pair; 4]); 27] = [
        ((1, 1), [(56, 56), (56, 56), (112, 112), (112, 112)]),
        ((14, 14), [(56, 56), (56, 56), (256, 256), (112, 112)]),
        ((42, 14), [(112, 56), (112, 56), (432, 144), (168, 56)]),
        ((70, 42), [(56, 56), (56, 56), (320, 192), (140, 84)]),
        ((13, 2000), [(28, 700), (28, 700), (16, 2464), (14, 896)]),
        ((640, 480), [(644, 476), (504, 364), (288, 224), (126, 98)]),
        ((481, 321), [(476, 308), (476, 308), (304, 208), (126, 98)]),
        ((4000, 3000), [(1148, 840), (504, 364), (288, 224), (126, 98)]),
        ((199, 1), [(812, 28), (812, 28), (3184, 16), (896, 14)]),
        ((1, 150), [(28, 700), (28, 700), (16, 2400), (14, 896)]),
        ((56, 56), [(56, 56), (56, 56), (256, 256), (112, 112)]),
        ((1003, 1001), [(980, 980), (448, 420), (256, 256), (112, 112)]),
        ((3000, 20), [(2996, 28), (2996, 28), (2400, 16), (896, 14)]),
        ((17, 900), [(28, 896), (28, 896), (32, 1696), (14, 742)]),
        ((28, 2800), [(28, 2800), (28, 2800), (32, 2048), (14, 896)]),
        ((2093, 2938), [(840, 1176), (364, 504), (208, 304), (98, 126)]),
        ((4343, 238), [(4340, 224), (1904, 84), (1024, 64), (448, 28)]),
        ((3815, 2041), [(1344, 728), (588, 308), (336, 192), (140, 84)]),
        ((425, 1285), [(420, 1288), (252, 756), (144, 448), (56, 182)]),
        ((928, 3046), [(532, 1792), (224, 784), (144, 448), (56, 196)]),
        ((3843, 2020), [(1372, 700), (616, 308), (336, 192), (140, 84)]),
        ((3120, 4455), [(812, 1176), (364, 532), (208, 304), (98, 126)]),
        ((836, 4702), [(420, 2352), (168, 1036), (112, 576), (42, 238)]),
        ((2043, 108), [(2044, 112), (1932, 84), (1024, 64), (448, 28)]),
        ((1776, 3344), [(728, 1372), (308, 588), (192, 336), (84, 140)]),
        ((2290, 1492), [(1232, 784), (532, 336), (304, 208), (140, 84)]),
        ((3191, 1308), [(1540, 616), (672, 280), (400, 160), (168, 70)]),
    ];

    type Pair = (u32, u32);

    #[test]
    fn sizes_equal_the_image_processors_of_transformers() {
        let pixels = |min_pixels, max_pixels| Sizing::Pixels { factor: 28, min: min_pixels, max: max_pixels };
        let patches = |patch, max_patches| Sizing::Patches { patch, max: max_patches };
        let rules =
            [pixels(56 * 56, 28 * 28 * 1280), pixels(4 * 28 * 28, 256 * 28 * 28), patches(16, 256), patches(14, 64)];
        for ((width, height), expected) in SIZES {
            for (rule, expected) in rules.into_iter().zip(expected) {
                let actual = rule.size(Size::new(width, height)).unwrap();
                assert_eq!((actual.width, actual.height), expected, "{width}x{height} {rule:?}");
            }
        }
        assert_eq!(rules[0].size(Size::new(2001, 10)), None);
    }

    #[test]
    fn no_size_exceeds_the_bound() {
        let mut rng = Rng::new(8, 1, 1);
        for _ in 0..20_000 {
            let factor = 1 + rng.below(40) as u32;
            let min_pixels = 1 + rng.below(9000);
            let max_pixels = min_pixels.max(u64::from(factor * factor)) + rng.below(90_000);
            let size = Size::new(1 + rng.below(3000) as u32, 1 + rng.below(3000) as u32);
            for rule in [
                Sizing::Pixels { factor, min: min_pixels, max: max_pixels },
                Sizing::Patches { patch: factor, max: 1 + min_pixels as u32 },
            ] {
                let Some(resized) = rule.size(size) else { continue };
                assert!(resized.area() <= rule.max_resized_pixels(), "{size:?} becomes {resized:?} with {rule:?}");
                assert!(resized.width.is_multiple_of(factor) && resized.height.is_multiple_of(factor));
            }
        }
    }
}
