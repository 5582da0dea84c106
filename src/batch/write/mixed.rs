//! Mixes an image with another one, from the pixels of both.
//!
//! The arithmetic is that of the kernel in `cuda/kernels/convert.cu`: both images are normalised
//! and erased in 32-bit floats, then added with weights, without a fused multiply-add, and the sum
//! is rounded once. Host and device therefore give the same bits.

use std::ops::Range;

use super::cast::{Blend, element};
use super::writer::Writer;
use crate::batch::Layout;
use crate::decode::Rect;
use crate::error::Result;
use crate::transform::{Erase, Mixing};

/// An image that is not yet cast to the batch's type.
#[derive(Clone, Copy)]
pub(crate) struct Unwritten<'a> {
    /// Pixels of the image, `u8` HWC.
    pub(crate) pixels: &'a [u8],
    /// The erased rectangle, if any.
    pub(crate) erase: Option<&'a Erase>,
}

impl Writer {
    /// Writes `own`, mixed with `partner`, to `dst`.
    ///
    /// # Errors
    /// [`ErrorKind::Transform`](crate::ErrorKind::Transform) if the length of an image or of `dst`
    /// does not match the size, or a rectangle leaves the image.
    pub(crate) fn write_mixed(
        &self,
        own: Unwritten<'_>,
        partner: Unwritten<'_>,
        mixing: &Mixing,
        dst: &mut [u8],
    ) -> Result<()> {
        self.check("an image", own.pixels.len(), self.image_bytes())?;
        self.check("a partner image", partner.pixels.len(), self.image_bytes())?;
        self.check("its entry in the batch", dst.len(), self.sample_bytes())?;
        for erase in [own.erase, partner.erase].into_iter().flatten() {
            self.check_rect("erasing", erase.rect)?;
        }
        if let Some(rect) = mixing.cut {
            self.check_rect("cutting", rect)?;
            self.write(own.pixels, own.erase, dst)?;
            self.write_rect(rect, dst, |pixel, c| self.value(partner, pixel, c));
            return Ok(());
        }
        let weight = mixing.weight;
        let mix = |own: f32, partner: f32| partner * (1.0 - weight) + own * weight;
        let blend = Blend { partner: partner.pixels, weight };
        let done = self.vector.map_or(0, |vector| vector(&self.cast, own.pixels, Some(blend), dst));
        let plain = |image: Unwritten<'_>, at: usize, c: usize| self.values[c][usize::from(image.pixels[at * 3 + c])];
        self.write_values(done..self.size.area() as usize, dst, |at, c| mix(plain(own, at, c), plain(partner, at, c)));
        // Few images have a rectangle, so the pass above ignores them, and the pixels of rectangles
        // are written again.
        for erase in [own.erase, partner.erase].into_iter().flatten() {
            self.write_rect(erase.rect, dst, |at, c| mix(self.value(own, at, c), self.value(partner, at, c)));
        }
        Ok(())
    }

    /// Value of channel `c` of pixel number `at` of `image`, in units of the output, not rounded.
    fn value(&self, image: Unwritten<'_>, at: usize, c: usize) -> f32 {
        let (x, y) = ((at % self.size.width as usize) as u32, (at / self.size.width as usize) as u32);
        match image.erase {
            Some(Erase { rect, value })
                if x.wrapping_sub(rect.x) < rect.width && y.wrapping_sub(rect.y) < rect.height =>
            {
                value[c]
            }
            _ => self.values[c][usize::from(image.pixels[at * 3 + c])],
        }
    }

    /// Writes `value` of each pixel of `rect`, which must lie in the image.
    fn write_rect(&self, rect: Rect, dst: &mut [u8], value: impl Fn(usize, usize) -> f32) {
        for y in rect.y..rect.y + rect.height {
            let first = y as usize * self.size.width as usize + rect.x as usize;
            self.write_values(first..first + rect.width as usize, dst, &value);
        }
    }

    /// Rounds and writes `value(at, c)` for each pixel number `at` of `pixels` and each channel
    /// `c`.
    fn write_values(&self, pixels: Range<usize>, dst: &mut [u8], value: impl Fn(usize, usize) -> f32) {
        match self.cast.kind.bytes() {
            1 => self.write_values_as::<1>(pixels, dst, value),
            2 => self.write_values_as::<2>(pixels, dst, value),
            _ => self.write_values_as::<4>(pixels, dst, value),
        }
    }

    /// `B` is the number of bytes per element.
    fn write_values_as<const B: usize>(
        &self,
        pixels: Range<usize>,
        dst: &mut [u8],
        value: impl Fn(usize, usize) -> f32,
    ) {
        let plane = self.size.area() as usize;
        let dst = dst.as_chunks_mut::<B>().0;
        for at in pixels {
            for c in 0..3 {
                let place = match self.cast.layout {
                    Layout::Nhwc => at * 3 + c,
                    Layout::Nchw => c * plane + at,
                };
                dst[place] = element::<B>(self.cast.kind.bits(value(at, c)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Dtype, Normalize};
    use crate::decode::Size;
    use crate::order::Rng;

    const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16];
    const LAYOUTS: [Layout; 2] = [Layout::Nhwc, Layout::Nchw];

    /// Every pair of bytes, in all three channels of an image of 256 x 256: all inputs of a
    /// weighted sum.
    fn all_pairs() -> [Vec<u8>; 2] {
        let pair = |i: usize| [(i % 256) as u8, (i / 256) as u8];
        [0, 1].map(|side| (0..256 * 256).flat_map(|i| [pair(i)[side]; 3]).collect())
    }

    #[test]
    fn vector_and_portable_mixing_give_the_same_bits_for_every_pair_of_pixels() {
        let [own, partner] = all_pairs();
        for (dtype, layout) in DTYPES.into_iter().flat_map(|d| LAYOUTS.map(|l| (d, l))) {
            let mut writer = Writer::new(Size::new(256, 256), dtype, layout, Normalize::IMAGENET).unwrap();
            let vector = writer.vector;
            for weight in [0.0, 1.0, 0.5, 0.25, 0.3, 0.999_999_94, 1e-30, 0.707_106_77] {
                let mixing = Mixing { weight, cut: None };
                let [fast, slow] = [vector, None].map(|vector| {
                    writer.vector = vector;
                    let mut dst = vec![0xa5; writer.sample_bytes()];
                    let [own, partner] = [&own, &partner].map(|pixels| Unwritten { pixels, erase: None });
                    writer.write_mixed(own, partner, &mixing, &mut dst).unwrap();
                    dst
                });
                assert!(fast == slow, "{dtype:?} {layout:?} weight {weight}");
            }
        }
    }

    /// Computes one element by the simplest code, like the kernel.
    fn naive(writer: &Writer, image: Unwritten<'_>, (x, y): (u32, u32), c: usize) -> f32 {
        let pixel = f32::from(image.pixels[((y * writer.size.width + x) * 3) as usize + c]);
        match image.erase {
            Some(Erase { rect: r, value })
                if (r.x..r.x + r.width).contains(&x) && (r.y..r.y + r.height).contains(&y) =>
            {
                value[c]
            }
            _ => writer.cast.scale[c].mul_add(pixel, writer.cast.bias[c]),
        }
    }

    #[test]
    fn a_mixed_image_is_the_sum_rounded_once() {
        let mut rng = Rng::new(4, 0, 0);
        for case in 0..160 {
            let size = Size::new(rng.below(70) as u32 + 1, rng.below(9) as u32 + 1);
            let (dtype, layout) = (DTYPES[case % 4], LAYOUTS[case / 4 % 2]);
            let writer = Writer::new(size, dtype, layout, Normalize::IMAGENET).unwrap();
            let rect = |rng: &mut Rng| {
                let (x, y) = (rng.below(size.width.into()) as u32, rng.below(size.height.into()) as u32);
                let (w, h) = (rng.below((size.width - x + 1).into()), rng.below((size.height - y + 1).into()));
                Rect::new(x, y, w as u32, h as u32)
            };
            let pixels = [(); 2].map(|()| (0..size.area() * 3).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>());
            let erase = [(); 2].map(|()| {
                let value = [rng.unit() as f32 * 300.0 - 20.0, 0.499_999_97, -0.7];
                rng.chance(0.6).then(|| Erase { rect: rect(&mut rng), value })
            });
            let [own, partner] = [0, 1].map(|i| Unwritten { pixels: &pixels[i], erase: erase[i].as_ref() });
            let cut = rng.chance(0.4).then(|| rect(&mut rng));
            let mixing = Mixing { weight: rng.unit() as f32, cut };
            let mut dst = vec![0xa5; writer.sample_bytes()];
            writer.write_mixed(own, partner, &mixing, &mut dst).unwrap();
            for (y, x) in (0..size.height).flat_map(|y| (0..size.width).map(move |x| (y, x))) {
                for c in 0..3 {
                    let (v, w) = (naive(&writer, own, (x, y), c), naive(&writer, partner, (x, y), c));
                    let sum = match mixing.cut {
                        None => w * (1.0 - mixing.weight) + v * mixing.weight,
                        Some(r) if (r.x..r.x + r.width).contains(&x) && (r.y..r.y + r.height).contains(&y) => w,
                        Some(_) => v,
                    };
                    let at = match layout {
                        Layout::Nhwc => ((y * size.width + x) * 3) as usize + c,
                        Layout::Nchw => ((c as u32 * size.height + y) * size.width + x) as usize,
                    };
                    let found = &dst[at * dtype.bytes()..][..dtype.bytes()];
                    let what = format!("{dtype:?} {layout:?} {size:?} {mixing:?} ({x}, {y}) channel {c}");
                    match dtype {
                        Dtype::U8 => assert_eq!(found[0], sum.round() as u8, "{what}"),
                        Dtype::F32 => assert_eq!(found, sum.to_ne_bytes(), "{what}"),
                        Dtype::F16 => assert_eq!(found, half::f16::from_f32(sum).to_ne_bytes(), "{what}"),
                        _ => assert_eq!(found, half::bf16::from_f32(sum).to_ne_bytes(), "{what}"),
                    }
                }
            }
        }
    }

    #[test]
    fn lengths_and_rectangles_that_do_not_fit_are_errors() {
        let writer = Writer::new(Size::new(4, 4), Dtype::F16, Layout::Nchw, Normalize::IMAGENET).unwrap();
        let outside = Erase { rect: Rect::new(3, 0, 2, 1), value: [0.0; 3] };
        let (whole, short) = ([0; 48], [0; 47]);
        let mix = |own: &[u8], partner: &[u8], erase, cut, dst: &mut [u8]| {
            let mixing = Mixing { weight: 0.5, cut };
            let (own, partner) = (Unwritten { pixels: own, erase: None }, Unwritten { pixels: partner, erase });
            writer.write_mixed(own, partner, &mixing, dst).map_err(|e| e.cause().to_owned())
        };
        assert_eq!(mix(&whole, &whole, None, None, &mut [0; 96]), Ok(()));
        assert!(mix(&short, &whole, None, None, &mut [0; 96]).is_err());
        assert!(mix(&whole, &short, None, None, &mut [0; 96]).unwrap_err().starts_with("a partner image"));
        assert!(mix(&whole, &whole, None, None, &mut [0; 95]).is_err());
        assert!(mix(&whole, &whole, Some(&outside), None, &mut [0; 96]).is_err());
        assert!(mix(&whole, &whole, None, Some(outside.rect), &mut [0; 96]).unwrap_err().starts_with("cutting"));
    }
}
