//! Mixing of neighbours in a batch that is complete, in place.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::batch::{Dtype, Layout};
use crate::decode::{Rect, Size};
use crate::error::{Error, ErrorKind, Result};
use crate::transform::Mixing;

/// Half-precision elements that are widened to floats at a time.
const BLOCK: usize = 256;

/// Applies `mixing` to `images`, the `count` images of a batch, of `size`, one after the other as `dtype` in `layout`.
///
/// `scratch` takes a copy of the last image; its memory is kept. Floats are mixed as 32-bit floats and rounded to nearest even, bytes to the
/// nearest.
///
/// # Errors
/// [`ErrorKind::Transform`] if `images` has another length, or images cannot be of this type.
pub fn mix(
    mixing: &Mixing,
    images: &mut [u8],
    count: usize,
    size: Size,
    dtype: Dtype,
    layout: Layout,
    scratch: &mut Vec<u8>,
) -> Result<()> {
    let bytes = size.area() as usize * 3 * dtype.bytes();
    let sum: fn(&mut [u8], &[u8], f32) = match dtype {
        Dtype::U8 => |own, partner, weight| blend(own, partner, weight, |[v]| v.into(), |v| [(v + 0.5) as u8]),
        Dtype::F32 => |own, partner, weight| blend(own, partner, weight, f32::from_ne_bytes, f32::to_ne_bytes),
        Dtype::F16 => blend_f16,
        Dtype::Bf16 => |own, partner, weight| {
            blend(own, partner, weight, |b| bf16::from_ne_bytes(b).to_f32(), |v| bf16::from_f32(v).to_ne_bytes());
        },
        other => return Err(Error::new(ErrorKind::Transform, format!("images cannot be of type {}", other.name()))),
    };
    if bytes == 0 || count.checked_mul(bytes) != Some(images.len()) {
        let found = images.len();
        return Err(Error::new(ErrorKind::Transform, format!("{count} images of {bytes} bytes each in {found} bytes")));
    }
    if count < 2 {
        return Ok(());
    }
    let one = |own: &mut [u8], partner: &[u8]| match mixing.cut {
        None => sum(own, partner, mixing.weight),
        Some(rect) => paste(own, partner, rect, size, dtype.bytes(), layout),
    };
    scratch.clear();
    scratch.extend_from_slice(&images[(count - 1) * bytes..]);
    // From the last to the first, so that each partner is still as it was.
    for index in (1..count).rev() {
        let (before, own) = images.split_at_mut(index * bytes);
        one(&mut own[..bytes], &before[(index - 1) * bytes..]);
    }
    one(&mut images[..bytes], scratch);
    Ok(())
}

/// Copies `rect` from `partner` to `own`.
fn paste(own: &mut [u8], partner: &[u8], rect: Rect, size: Size, element: usize, layout: Layout) {
    let (pixel, planes) = if layout == Layout::Nhwc { (3 * element, 1) } else { (element, 3) };
    let row = size.width as usize * pixel;
    let (left, length) = (rect.x as usize * pixel, rect.width as usize * pixel);
    let plane = row * size.height as usize;
    for (own, partner) in own.chunks_exact_mut(plane).zip(partner.chunks_exact(plane)).take(planes) {
        for y in rect.y as usize..(rect.y + rect.height) as usize {
            let at = y * row + left;
            own[at..at + length].copy_from_slice(&partner[at..at + length]);
        }
    }
}

/// The weighted sum of elements of `B` bytes.
fn blend<const B: usize>(
    own: &mut [u8],
    partner: &[u8],
    weight: f32,
    read: impl Fn([u8; B]) -> f32,
    write: impl Fn(f32) -> [u8; B],
) {
    for (own, partner) in own.as_chunks_mut::<B>().0.iter_mut().zip(partner.as_chunks::<B>().0) {
        *own = write(read(*partner) * (1.0 - weight) + read(*own) * weight);
    }
}

/// The same in blocks, since the CPU's conversion of half floats is asked for once a slice.
fn blend_f16(own: &mut [u8], partner: &[u8], weight: f32) {
    let widen = |bytes: &[u8], floats: &mut [f32; BLOCK]| {
        let mut halves = [f16::ZERO; BLOCK];
        for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *half = f16::from_ne_bytes(*bytes);
        }
        halves.convert_to_f32_slice(floats);
    };
    let (mut a, mut b, mut halves) = ([0.0; BLOCK], [0.0; BLOCK], [f16::ZERO; BLOCK]);
    for (own, partner) in own.chunks_mut(2 * BLOCK).zip(partner.chunks(2 * BLOCK)) {
        widen(own, &mut a);
        widen(partner, &mut b);
        for (a, b) in a.iter_mut().zip(&b) {
            *a = b * (1.0 - weight) + *a * weight;
        }
        halves.convert_from_f32_slice(&a);
        for (own, half) in own.as_chunks_mut::<2>().0.iter_mut().zip(&halves) {
            *own = half.to_ne_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Normalize, Writer};
    use crate::order::Rng;

    const SIZE: Size = Size { width: 19, height: 11 };
    const COUNT: usize = 5;

    /// A batch, and what the mixing must make of it: out of place, element by element.
    fn check(dtype: Dtype, layout: Layout, mixing: &Mixing) {
        let writer = Writer::new(SIZE, dtype, layout, Normalize::IMAGENET).unwrap();
        let mut rng = Rng::new(2, 0, 0);
        let bytes = writer.sample_bytes();
        let mut batch = vec![0; COUNT * bytes];
        for image in batch.chunks_exact_mut(bytes) {
            let pixels: Vec<u8> = (0..SIZE.area() * 3).map(|_| rng.next_u64() as u8).collect();
            writer.write(&pixels, None, image).unwrap();
        }
        let element = |batch: &[u8], image: usize, i: usize| -> f32 {
            let bytes = &batch[image * bytes + i * dtype.bytes()..][..dtype.bytes()];
            match dtype {
                Dtype::U8 => bytes[0].into(),
                Dtype::F32 => f32::from_ne_bytes(bytes.try_into().unwrap()),
                Dtype::F16 => f16::from_ne_bytes(bytes.try_into().unwrap()).to_f32(),
                _ => bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f32(),
            }
        };
        let before = batch.clone();
        mix(mixing, &mut batch, COUNT, SIZE, dtype, layout, &mut Vec::new()).unwrap();
        let area = SIZE.area() as usize;
        for (image, i) in (0..COUNT).flat_map(|image| (0..area * 3).map(move |i| (image, i))) {
            let (own, partner) = (element(&before, image, i), element(&before, Mixing::partner(image, COUNT), i));
            let pixel = if layout == Layout::Nhwc { i / 3 } else { i % area };
            let (x, y) = ((pixel % 19) as u32, (pixel / 19) as u32);
            let sum = partner * (1.0 - mixing.weight) + own * mixing.weight;
            let expected = match mixing.cut {
                Some(r) if (r.x..r.x + r.width).contains(&x) && (r.y..r.y + r.height).contains(&y) => partner,
                Some(_) => own,
                None => match dtype {
                    Dtype::U8 => sum.round(),
                    Dtype::F32 => sum,
                    Dtype::F16 => f16::from_f32(sum).to_f32(),
                    _ => bf16::from_f32(sum).to_f32(),
                },
            };
            assert_eq!(element(&batch, image, i), expected, "{dtype:?} {layout:?} image {image} element {i}");
        }
    }

    #[test]
    fn each_image_is_mixed_with_the_one_before_it() {
        let sum = Mixing { weight: 0.3, cut: None };
        let cut = Mixing { weight: 0.8, cut: Some(Rect::new(4, 3, 9, 8)) };
        for dtype in [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16] {
            for layout in [Layout::Nhwc, Layout::Nchw] {
                check(dtype, layout, &sum);
                check(dtype, layout, &cut);
            }
        }
    }

    #[test]
    fn a_batch_of_one_stays_and_a_wrong_length_is_an_error() {
        let sum = Mixing { weight: 0.3, cut: None };
        let one = |images: &mut [u8], count| {
            mix(&sum, images, count, Size::new(2, 1), Dtype::U8, Layout::Nhwc, &mut Vec::new())
        };
        let mut images = [1, 2, 3, 4, 5, 6];
        one(&mut images, 1).unwrap();
        assert_eq!(images, [1, 2, 3, 4, 5, 6]);
        assert_eq!(one(&mut images, 2).unwrap_err().cause(), "2 images of 6 bytes each in 6 bytes");
    }
}
