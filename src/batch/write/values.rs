//! Applies effects to normalized values, and blends pairs of images.
//!
//! `device/nvidia/kernels/convert.cu` uses the same arithmetic, so host and device produce the same
//! bits. Each image is normalized and its effects are applied in 32-bit floats. With MixUp, the
//! weighted sum of both images is then computed without a fused multiply-add, and rounded once to
//! the batch's type. With CutMix, each pixel comes from one of the two images.

use std::ops::Range;

use super::cast::{Blend, element};
use super::writer::BatchWriter;
use crate::batch::Layout;
use crate::decode::Rect;
use crate::error::Result;
use crate::transform::{AnyValueEffect, Mixing};

/// An image that has not yet been normalized and cast to the batch's type.
#[derive(Clone, Copy)]
pub(crate) struct UncastImage<'a> {
    /// `u8` HWC.
    pub(crate) pixels: &'a [u8],
    pub(crate) effects: &'a [AnyValueEffect],
}

impl BatchWriter {
    /// Writes an image with its effects. Fails if the length of the image or of `dst` does not
    /// match the size, or if a nonempty rectangle of an effect is not inside the image.
    pub(crate) fn write_with_effects(&self, image: UncastImage<'_>, dst: &mut [u8]) -> Result<()> {
        self.write(image.pixels, dst)?;
        self.check_effects(image.effects)?;
        // `write` ignores effects, so overwrite the pixels that they change.
        for effect in image.effects {
            self.write_rect(effect.area(), dst, |index| self.value(image, index));
        }
        Ok(())
    }

    /// Applies `effects` to an image that was written unchanged ([`BatchWriter::is_copy`]).
    pub(crate) fn apply_effects(&self, effects: &[AnyValueEffect], image: &mut [u8]) -> Result<()> {
        self.check_len("the output row for an image", image.len(), self.image_bytes())?;
        self.check_effects(effects)?;
        for (index, effect) in effects.iter().enumerate() {
            for (x, y) in pixels_in(effect.area()) {
                // Writing rounds, so the first effect on a pixel applies all effects at once.
                if effects[..index].iter().any(|earlier| earlier.covers(x, y)) {
                    continue;
                }
                let index = y as usize * self.size.width as usize + x as usize;
                let value = AnyValueEffect::run_all(effects, x, y, self.normalize_pixel(image, index));
                let pixel = &mut image[index * self.channels..][..self.channels];
                pixel.iter_mut().zip(value).for_each(|(out, value)| *out = self.cast.element_type.bits(value) as u8);
            }
        }
        Ok(())
    }

    pub(crate) fn write_mixed(
        &self,
        original: UncastImage<'_>,
        partner: UncastImage<'_>,
        mixing: &Mixing,
        dst: &mut [u8],
    ) -> Result<()> {
        self.check_len("an image", original.pixels.len(), self.image_bytes())?;
        self.check_len("a partner image", partner.pixels.len(), self.image_bytes())?;
        self.check_len("the output row for an image", dst.len(), self.sample_bytes())?;
        self.check_effects(partner.effects)?;
        if let Some(rect) = mixing.cutmix_area {
            self.check_rect("the CutMix rectangle", rect)?;
            self.write_with_effects(original, dst)?;
            self.write_rect(rect, dst, |index| self.value(partner, index));
            return Ok(());
        }
        self.check_effects(original.effects)?;
        let weight = mixing.weight;
        let mix =
            |own: [f32; 3], partner: [f32; 3]| std::array::from_fn(|c| partner[c] * (1.0 - weight) + own[c] * weight);
        let blend = Blend { partner: partner.pixels, weight };
        let vectorized_pixels = self.vector.map_or(0, |vector| vector(&self.cast, original.pixels, Some(blend), dst));
        let remaining_pixels = vectorized_pixels..self.size.area() as usize;
        self.write_values(remaining_pixels, dst, |index| {
            mix(self.normalize_pixel(original.pixels, index), self.normalize_pixel(partner.pixels, index))
        });
        for effect in original.effects.iter().chain(partner.effects) {
            self.write_rect(effect.area(), dst, |index| mix(self.value(original, index), self.value(partner, index)));
        }
        Ok(())
    }

    fn check_effects(&self, effects: &[AnyValueEffect]) -> Result<()> {
        effects.iter().try_for_each(|effect| self.check_rect("the rectangle of an effect", effect.area()))
    }

    /// Returns the values of a pixel before any effects. If the image has one channel, the three
    /// values are the same pixel, normalized like red, green and blue. Only the first is written.
    fn normalize_pixel(&self, pixels: &[u8], index: usize) -> [f32; 3] {
        let pixel = &pixels[index * self.channels..][..self.channels];
        std::array::from_fn(|c| self.normalized_values[c][usize::from(pixel[c % self.channels])])
    }

    /// Returns the unrounded values after the image's effects.
    fn value(&self, image: UncastImage<'_>, index: usize) -> [f32; 3] {
        let width = self.size.width as usize;
        AnyValueEffect::run_all(
            image.effects,
            (index % width) as u32,
            (index / width) as u32,
            self.normalize_pixel(image.pixels, index),
        )
    }

    /// Writes `value` for each pixel in `rect`, which must be inside the image.
    fn write_rect(&self, rect: Rect, dst: &mut [u8], value: impl Fn(usize) -> [f32; 3]) {
        for y in rect.y..rect.y + rect.height {
            let first = y as usize * self.size.width as usize + rect.x as usize;
            self.write_values(first..first + rect.width as usize, dst, &value);
        }
    }

    fn write_values(&self, pixels: Range<usize>, dst: &mut [u8], value: impl Fn(usize) -> [f32; 3]) {
        match self.cast.element_type.bytes() {
            1 => self.write_values_as::<1>(pixels, dst, value),
            2 => self.write_values_as::<2>(pixels, dst, value),
            _ => self.write_values_as::<4>(pixels, dst, value),
        }
    }

    fn write_values_as<const B: usize>(&self, pixels: Range<usize>, dst: &mut [u8], value: impl Fn(usize) -> [f32; 3]) {
        let plane = self.size.area() as usize;
        let dst = dst.as_chunks_mut::<B>().0;
        let cast = |value: [f32; 3]| value.map(|value| element::<B>(self.cast.element_type.bits(value)));
        // Neighbors often have the same value, for example in an erased rectangle.
        let mut cached = ([0.0; 3], cast([0.0; 3]));
        for index in pixels {
            let value = value(index);
            if value.map(f32::to_bits) != cached.0.map(f32::to_bits) {
                cached = (value, cast(value));
            }
            for (c, element) in cached.1.into_iter().enumerate().take(self.channels) {
                let index = match self.cast.layout {
                    Layout::Nhwc => index * self.channels + c,
                    Layout::Nchw => c * plane + index,
                };
                dst[index] = element;
            }
        }
    }
}

fn pixels_in(rect: Rect) -> impl Iterator<Item = (u32, u32)> {
    (rect.y..rect.y + rect.height).flat_map(move |y| (rect.x..rect.x + rect.width).map(move |x| (x, y)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::fused::mul_add;
    use crate::batch::{Dtype, Normalize};
    use crate::decode::Size;
    use crate::sampler::Rng;
    use crate::transform::Erase;

    const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16];
    const LAYOUTS: [Layout; 2] = [Layout::Nhwc, Layout::Nchw];

    /// Returns two images that together contain every pair of byte values in each channel.
    fn all_pairs() -> [Vec<u8>; 2] {
        let pair = |i: usize| [(i % 256) as u8, (i / 256) as u8];
        [0, 1].map(|side| (0..256 * 256).flat_map(|i| [pair(i)[side]; 3]).collect())
    }

    #[test]
    fn vector_and_portable_mixing_are_bit_identical() {
        let [first, partner] = all_pairs();
        for (dtype, layout) in DTYPES.into_iter().flat_map(|d| LAYOUTS.map(|l| (d, l))) {
            let mut writer = BatchWriter::new(Size::new(256, 256), dtype, layout, Normalize::IMAGENET).unwrap();
            let vector = writer.vector;
            for weight in [0.0, 1.0, 0.5, 0.25, 0.3, 0.999_999_94, 1e-30, 0.707_106_77] {
                let mixing = Mixing { weight, cutmix_area: None };
                let [vector_row, portable_row] = [vector, None].map(|vector| {
                    writer.vector = vector;
                    let mut dst = vec![0xa5; writer.sample_bytes()];
                    let [first, partner] = [&first, &partner].map(|pixels| UncastImage { pixels, effects: &[] });
                    writer.write_mixed(first, partner, &mixing, &mut dst).unwrap();
                    dst
                });
                assert!(vector_row == portable_row, "{dtype:?} {layout:?} weight {weight}");
            }
        }
    }

    fn naive(writer: &BatchWriter, image: UncastImage<'_>, (x, y): (u32, u32), c: usize) -> f32 {
        let pixel = f32::from(image.pixels[((y * writer.size.width + x) * 3) as usize + c]);
        match image.effects.last() {
            Some(AnyValueEffect::Erase(Erase { rect: r, value }))
                if (r.x..r.x + r.width).contains(&x) && (r.y..r.y + r.height).contains(&y) =>
            {
                value[c]
            }
            _ => mul_add(writer.cast.scale[c], pixel, writer.cast.bias[c]),
        }
    }

    #[test]
    fn a_mixed_image_is_the_sum_rounded_once() {
        let mut rng = Rng::new(4, 0, 0);
        for case in 0..160 {
            let size = Size::new(rng.below(70) as u32 + 1, rng.below(9) as u32 + 1);
            let (dtype, layout) = (DTYPES[case % 4], LAYOUTS[case / 4 % 2]);
            let writer = BatchWriter::new(size, dtype, layout, Normalize::IMAGENET).unwrap();
            let rect = |rng: &mut Rng| {
                let (x, y) = (rng.below(size.width.into()) as u32, rng.below(size.height.into()) as u32);
                let (w, h) = (rng.below((size.width - x + 1).into()), rng.below((size.height - y + 1).into()));
                Rect::new(x, y, w as u32, h as u32)
            };
            let pixels = [(); 2].map(|()| (0..size.area() * 3).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>());
            let erase = [(); 2].map(|()| {
                let value = [rng.unit() as f32 * 300.0 - 20.0, 0.499_999_97, -0.7];
                let erase = rng.chance(0.6).then(|| AnyValueEffect::Erase(Erase { rect: rect(&mut rng), value }));
                Vec::from_iter(erase)
            });
            let [first, partner] = [0, 1].map(|i| UncastImage { pixels: &pixels[i], effects: &erase[i] });
            let cut = rng.chance(0.4).then(|| rect(&mut rng));
            let mixing = Mixing { weight: rng.unit() as f32, cutmix_area: cut };
            let mut dst = vec![0xa5; writer.sample_bytes()];
            writer.write_mixed(first, partner, &mixing, &mut dst).unwrap();
            for (y, x) in (0..size.height).flat_map(|y| (0..size.width).map(move |x| (y, x))) {
                for c in 0..3 {
                    let (v, w) = (naive(&writer, first, (x, y), c), naive(&writer, partner, (x, y), c));
                    let sum = match mixing.cutmix_area {
                        None => w * (1.0 - mixing.weight) + v * mixing.weight,
                        Some(r) if (r.x..r.x + r.width).contains(&x) && (r.y..r.y + r.height).contains(&y) => w,
                        Some(_) => v,
                    };
                    let index = match layout {
                        Layout::Nhwc => ((y * size.width + x) * 3) as usize + c,
                        Layout::Nchw => ((c as u32 * size.height + y) * size.width + x) as usize,
                    };
                    let actual = &dst[index * dtype.bytes()..][..dtype.bytes()];
                    let what = format!("{dtype:?} {layout:?} {size:?} {mixing:?} ({x}, {y}) channel {c}");
                    match dtype {
                        Dtype::U8 => assert_eq!(actual[0], sum.round() as u8, "{what}"),
                        Dtype::F32 => assert_eq!(actual, sum.to_ne_bytes(), "{what}"),
                        Dtype::F16 => assert_eq!(actual, half::f16::from_f32(sum).to_ne_bytes(), "{what}"),
                        _ => assert_eq!(actual, half::bf16::from_f32(sum).to_ne_bytes(), "{what}"),
                    }
                }
            }
        }
    }

    #[test]
    fn erasing_changes_only_the_rectangle() {
        let size = Size::new(20, 7);
        let image = all_pairs()[1][..420].iter().zip(0..).map(|(a, b): (&u8, u32)| a ^ b as u8).collect::<Vec<u8>>();
        let erase = AnyValueEffect::Erase(Erase { rect: Rect::new(3, 2, 11, 4), value: [0.0, -1.5, 300.0] });
        for (dtype, layout) in DTYPES.into_iter().flat_map(|d| [(d, Layout::Nhwc), (d, Layout::Nchw)]) {
            let writer = BatchWriter::new(size, dtype, layout, Normalize::IMAGENET).unwrap();
            let (mut plain, mut erased) = (vec![0; writer.sample_bytes()], vec![0; writer.sample_bytes()]);
            writer.write(&image, &mut plain).unwrap();
            writer.write_with_effects(UncastImage { pixels: &image, effects: &[erase] }, &mut erased).unwrap();
            if writer.is_copy() {
                writer.apply_effects(&[erase], &mut plain).unwrap();
                assert!(plain == erased, "in place");
                plain.copy_from_slice(&image);
            }
            let expected = [0.0, -1.5, 300.0].map(|v| writer.cast.element_type.bits(v).to_le_bytes());
            let b = dtype.bytes();
            for i in 0..420 {
                let (pixel, c) = if layout == Layout::Nhwc { (i / 3, i % 3) } else { (i % 140, i / 140) };
                let inside = (3..14).contains(&(pixel % 20)) && (2..6).contains(&(pixel / 20));
                let want = if inside { &expected[c][..b] } else { &plain[i * b..][..b] };
                assert_eq!(&erased[i * b..][..b], want, "{dtype:?} {layout:?} element {i}");
            }
        }
        let writer = BatchWriter::new(size, Dtype::U8, Layout::Nhwc, Normalize::UNIT).unwrap();
        let outside = AnyValueEffect::Erase(Erase { rect: Rect::new(10, 0, 11, 1), value: [0.0; 3] });
        assert!(writer.apply_effects(&[outside], &mut vec![0; 420]).is_err());
    }

    #[test]
    fn lengths_and_rectangles_that_do_not_fit_are_rejected() {
        let writer = BatchWriter::new(Size::new(4, 4), Dtype::F16, Layout::Nchw, Normalize::IMAGENET).unwrap();
        let outside = [AnyValueEffect::Erase(Erase { rect: Rect::new(3, 0, 2, 1), value: [0.0; 3] })];
        let (image, short) = ([0; 48], [0; 47]);
        let mix = |first: &[u8], partner: &[u8], effects: &[AnyValueEffect], cut, dst: &mut [u8]| {
            let mixing = Mixing { weight: 0.5, cutmix_area: cut };
            let (first_image, partner) =
                (UncastImage { pixels: first, effects: &[] }, UncastImage { pixels: partner, effects });
            writer.write_mixed(first_image, partner, &mixing, dst).map_err(|e| e.cause().to_owned())
        };
        assert_eq!(mix(&image, &image, &[], None, &mut [0; 96]), Ok(()));
        assert!(mix(&short, &image, &[], None, &mut [0; 96]).is_err());
        assert!(mix(&image, &short, &[], None, &mut [0; 96]).unwrap_err().starts_with("a partner image"));
        assert!(mix(&image, &image, &[], None, &mut [0; 95]).is_err());
        assert!(mix(&image, &image, &outside, None, &mut [0; 96]).is_err());
        assert!(mix(&image, &image, &[], Some(outside[0].area()), &mut [0; 96]).unwrap_err().starts_with("the CutMix"));
    }
}
