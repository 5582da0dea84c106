//! Mixes the images of a complete batch, in place.

use super::BatchWriter;
use super::write::UncastImage;
use crate::error::{Error, ErrorKind, Result};
use crate::transform::{AnyValueEffect, Mixing};

/// Mixes each image of a batch with the previous image, and the first image with the last one. A
/// single image is only normalized and cast, and its effects are applied. `count` is the number of
/// images, and `effects(i)` returns the effects on the values of image `i`. `scratch_image` is
/// scratch memory for one `u8` image, and `last_image` for a copy of the last image.
///
/// Initially, each row of `images` begins with the image as `u8` HWC, which is never larger than
/// the image in its final type. The results replace the images in place.
///
/// Fails if `images` or `scratch_image` has the wrong length, or if a nonempty rectangle of an
/// effect or of CutMix is not inside its image.
pub(crate) fn mix<E: AsRef<[AnyValueEffect]>>(
    writer: &BatchWriter,
    mixing: &Mixing,
    images: &mut [u8],
    (count, effects): (usize, impl Fn(usize) -> E),
    scratch_image: &mut [u8],
    last_image: &mut Vec<u8>,
) -> Result<()> {
    let (row_bytes, image_bytes) = (writer.sample_bytes(), writer.image_bytes());
    if count.checked_mul(row_bytes) != Some(images.len()) || scratch_image.len() != image_bytes {
        let (bytes, scratch) = (images.len(), scratch_image.len());
        let cause = format!(
            "cannot mix {count} images of {row_bytes} bytes each: the batch has {bytes} bytes, and the scratch memory \
             has {scratch} bytes for an image of {image_bytes} bytes"
        );
        return Err(Error::new(ErrorKind::Transform, cause));
    }
    last_image.clear();
    last_image
        .extend_from_slice(&images[count.saturating_sub(1) * row_bytes..][..if count == 0 { 0 } else { image_bytes }]);
    // Mix the last image first, so that the previous image is still unmixed.
    for index in (0..count).rev() {
        scratch_image.copy_from_slice(&images[index * row_bytes..][..image_bytes]);
        let (earlier_rows, later_rows) = images.split_at_mut(index * row_bytes);
        let partner = Mixing::partner(index, count);
        let pixels = if index == 0 { &last_image[..] } else { &earlier_rows[partner * row_bytes..][..image_bytes] };
        let (own_effects, partner_effects) = (effects(index), effects(partner));
        let (own_image, dst) =
            (UncastImage { pixels: scratch_image, effects: own_effects.as_ref() }, &mut later_rows[..row_bytes]);
        if count == 1 {
            writer.write_with_effects(own_image, dst)?;
        } else {
            writer.write_mixed(own_image, UncastImage { pixels, effects: partner_effects.as_ref() }, mixing, dst)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Dtype, Layout, Normalize};
    use crate::decode::{Rect, Size};
    use crate::sampler::Rng;
    use crate::transform::Erase;

    const SIZE: Size = Size { width: 19, height: 11 };

    fn check(count: usize, dtype: Dtype, layout: Layout, mixing: &Mixing) {
        let writer = BatchWriter::new(SIZE, dtype, layout, Normalize::IMAGENET).unwrap();
        let mut rng = Rng::new(2, 0, 0);
        let mut image = || (0..SIZE.area() * 3).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
        let pixels: Vec<_> = (0..count).map(|_| image()).collect();
        let rect = |i: usize| Rect::new(i as u32, 2, 7, 5);
        let erase = |rect| AnyValueEffect::Erase(Erase { rect, value: [7.7, -1.0, 300.0] });
        let effects: Vec<Vec<AnyValueEffect>> =
            (0..count).map(|i| Vec::from_iter((i % 2 == 1).then(|| erase(rect(i))))).collect();
        let mut batch = vec![0xa5; count * writer.sample_bytes()];
        for (row_bytes, pixels) in batch.chunks_exact_mut(writer.sample_bytes()).zip(&pixels) {
            row_bytes[..pixels.len()].copy_from_slice(pixels);
        }
        let (mut scratch_image, mut last) = (vec![0; writer.image_bytes()], vec![1; 3]);
        mix(&writer, mixing, &mut batch, (count, |i| &effects[i][..]), &mut scratch_image, &mut last).unwrap();
        for (i, actual) in batch.chunks_exact(writer.sample_bytes()).enumerate() {
            let image = |i: usize| UncastImage { pixels: &pixels[i], effects: &effects[i] };
            let mut expected = vec![0; writer.sample_bytes()];
            match count {
                1 => writer.write_with_effects(image(0), &mut expected).unwrap(),
                _ => writer.write_mixed(image(i), image((i + count - 1) % count), mixing, &mut expected).unwrap(),
            }
            assert!(actual == expected, "{count} {dtype:?} {layout:?} image {i}");
        }
    }

    #[test]
    fn each_image_is_mixed_with_its_predecessor() {
        let sum = Mixing { weight: 0.3, cutmix_area: None };
        let cut = Mixing { weight: 0.8, cutmix_area: Some(Rect::new(4, 3, 9, 8)) };
        for dtype in [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16] {
            for (layout, count) in [Layout::Nhwc, Layout::Nchw].into_iter().flat_map(|l| [1, 2, 5].map(|n| (l, n))) {
                check(count, dtype, layout, &sum);
                check(count, dtype, layout, &cut);
            }
        }
    }

    #[test]
    fn a_wrong_length_is_rejected() {
        let writer = BatchWriter::new(Size::new(2, 1), Dtype::U8, Layout::Nhwc, Normalize::UNIT).unwrap();
        let (sum, none) = (Mixing { weight: 0.3, cutmix_area: None }, (2, |_| []));
        let e = mix(&writer, &sum, &mut [1; 6], none, &mut [0; 6], &mut Vec::new()).unwrap_err();
        assert_eq!(
            e.cause(),
            "cannot mix 2 images of 6 bytes each: the batch has 6 bytes, and the scratch memory has 6 bytes for an \
             image of 6 bytes"
        );
        assert!(mix(&writer, &sum, &mut [1; 12], none, &mut [0; 5], &mut Vec::new()).is_err());
    }
}
