//! Sizes of images that are divided into patches.
//!
//! [`Sizing::Pixels`] is `smart_resize` of Qwen2-VL, and [`Sizing::Patches`] is
//! `get_image_size_for_max_num_patches` of SigLIP 2. Both use 64-bit floats and the same order of
//! operations as the originals, so the sizes are equal for every image.

use crate::decode::Size;

/// Maximum aspect ratio of an image for Qwen2-VL.
pub(super) const MAX_ASPECT: u32 = 200;

/// The rule that determines the size of a resized image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sizing {
    /// Both sides are multiples of `factor`, and the number of pixels is from `least` to `most`.
    Pixels { factor: u32, least: u64, most: u64 },
    /// Both sides are multiples of `patch`, and the image has at most `most` patches.
    Patches { patch: u32, most: u32 },
}

impl Sizing {
    /// Returns the size to which an image of size `image` is resized, or `None` if the aspect ratio
    /// of `image` is too large.
    pub(super) fn size(self, image: Size) -> Option<Size> {
        let (height, width) = (f64::from(image.height), f64::from(image.width));
        match self {
            Sizing::Pixels { factor, least, most } => {
                if height.max(width) / height.min(width) > f64::from(MAX_ASPECT) {
                    return None;
                }
                let (factor, least, most) = (f64::from(factor), least as f64, most as f64);
                let sides = [height, width];
                let rounded = sides.map(|side| (side / factor).round_ties_even() * factor);
                let [height, width] = if rounded[0] * rounded[1] > most {
                    let beta = (height * width / most).sqrt();
                    sides.map(|side| factor.max((side / beta / factor).floor() * factor))
                } else if rounded[0] * rounded[1] < least {
                    let beta = (least / (height * width)).sqrt();
                    sides.map(|side| (side * beta / factor).ceil() * factor)
                } else {
                    rounded
                };
                Some(Size::new(width as u32, height as u32)).filter(|size| size.area() > 0)
            }
            Sizing::Patches { patch, most } => {
                const EPS: f64 = 1e-5;
                let side = f64::from(patch);
                let scaled = |scale: f64, length: f64| ((length * scale / side).ceil() * side).max(side);
                let (mut low, mut high) = (EPS / 10.0, 100.0);
                while high - low >= EPS {
                    let scale = (low + high) / 2.0;
                    let patches = (scaled(scale, height) / side) * (scaled(scale, width) / side);
                    if patches <= f64::from(most) {
                        low = scale;
                    } else {
                        high = scale;
                    }
                }
                let size = Size::new(scaled(low, width) as u32, scaled(low, height) as u32);
                Some(size).filter(|size| size.area() <= self.most_pixels())
            }
        }
    }

    /// Returns an upper bound on the number of pixels in the sizes that [`size`](Sizing::size)
    /// returns.
    pub(super) fn most_pixels(self) -> u64 {
        match self {
            Sizing::Pixels { factor, least, most } => {
                let (factor, aspect) = (u64::from(factor), f64::from(MAX_ASPECT));
                // The shorter side of a shrunk image is at least one factor.
                let narrow = factor * ((most as f64 * aspect).sqrt().floor() as u64);
                // Each side of an enlarged image is rounded up by less than one factor.
                let sides = (least as f64).sqrt() * (aspect.sqrt() + 1.0 / aspect.sqrt());
                let enlarged = least + factor * (sides.ceil() as u64 + 1) + factor * factor;
                most.max(narrow).max(enlarged)
            }
            Sizing::Patches { patch, most } => u64::from(patch) * u64::from(patch) * u64::from(most),
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
        let pixels = |least, most| Sizing::Pixels { factor: 28, least, most };
        let patches = |patch, most| Sizing::Patches { patch, most };
        let rules =
            [pixels(56 * 56, 28 * 28 * 1280), pixels(4 * 28 * 28, 256 * 28 * 28), patches(16, 256), patches(14, 64)];
        for ((width, height), expected) in SIZES {
            for (rule, expected) in rules.into_iter().zip(expected) {
                let found = rule.size(Size::new(width, height)).unwrap();
                assert_eq!((found.width, found.height), expected, "{width}x{height} {rule:?}");
            }
        }
        assert_eq!(rules[0].size(Size::new(2001, 10)), None);
    }

    #[test]
    fn no_size_exceeds_the_bound() {
        let mut rng = Rng::new(8, 1, 1);
        for _ in 0..20_000 {
            let factor = 1 + rng.below(40) as u32;
            let least = 1 + rng.below(9000);
            let most = least.max(u64::from(factor * factor)) + rng.below(90_000);
            let size = Size::new(1 + rng.below(3000) as u32, 1 + rng.below(3000) as u32);
            for rule in
                [Sizing::Pixels { factor, least, most }, Sizing::Patches { patch: factor, most: 1 + least as u32 }]
            {
                let Some(found) = rule.size(size) else { continue };
                assert!(found.area() <= rule.most_pixels(), "{size:?} becomes {found:?} with {rule:?}");
                assert!(found.width.is_multiple_of(factor) && found.height.is_multiple_of(factor));
            }
        }
    }
}
