//! Writes images into their rows of a batch.

use std::sync::Arc;

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::cast::{Cast, ElementType, VectorWriter, element};
#[cfg(target_arch = "aarch64")]
use super::neon;
use crate::batch::fused::mul_add;
use crate::batch::{Dtype, Layout, Normalize};
use crate::decode::{Rect, Size};
use crate::error::{Error, ErrorKind, Result};

/// Normalizes and casts transformed images, and writes them into their rows of a batch. The images
/// are `u8` HWC, with three channels or one.
#[derive(Debug, Clone)]
pub struct BatchWriter {
    pub(super) size: Size,
    pub(super) channels: usize,
    pub(super) cast: Cast,
    /// The normalized value of each pixel value, per channel. With `U8`, the pixel value itself.
    pub(super) normalized_values: Arc<[[f32; 256]; 3]>,
    /// The bits of the output element for each pixel value, per channel.
    element_bits: Arc<[[u32; 256]; 3]>,
    /// `None` if there is no SIMD code for this CPU, or if the images have one channel.
    pub(super) vector: Option<VectorWriter>,
}

impl BatchWriter {
    /// Creates a writer for images of size `size`. With [`Dtype::U8`], `normalize` is only checked.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `normalize` is invalid or overflows `f32`, or if `dtype` is not
    /// `U8`, `F32`, `F16` or `Bf16`.
    pub fn new(size: Size, dtype: Dtype, layout: Layout, normalize: Normalize) -> Result<Self> {
        normalize.check()?;
        let element_type = match dtype {
            Dtype::U8 => ElementType::U8,
            Dtype::F32 => ElementType::F32,
            Dtype::F16 => ElementType::F16,
            Dtype::Bf16 => ElementType::Bf16,
            unsupported => {
                return Err(Error::config(format!(
                    "dtype {}: images support only u8, f32, f16 and bf16",
                    unsupported.name()
                )));
            }
        };
        let (scale, bias) = normalize.scale_bias();
        let (mut values, mut table) = ([[0.0; 256]; 3], [[0; 256]; 3]);
        for c in 0..3 {
            for (pixel, value) in values[c].iter_mut().enumerate() {
                *value = mul_add(scale[c], pixel as f32, bias[c]);
            }
        }
        // Normalization is monotonic, so checking the pixel values 0 and 255 is enough.
        if values.iter().any(|v| !v[0].is_finite() || !v[255].is_finite()) {
            let Normalize { mean, std } = normalize;
            return Err(Error::config(format!(
                "normalize: with mean {mean:?} and std {std:?}, normalized values overflow f32"
            )));
        }
        let (scale, bias) = if element_type == ElementType::U8 { ([1.0; 3], [0.0; 3]) } else { (scale, bias) };
        if element_type == ElementType::U8 {
            values = [std::array::from_fn(|pixel| pixel as f32); 3];
        }
        for c in 0..3 {
            table[c] = values[c].map(|value| element_type.bits(value));
        }
        #[cfg(target_arch = "x86_64")]
        let vector = avx2::choose();
        #[cfg(target_arch = "aarch64")]
        let vector = neon::choose();
        #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
        let vector = None;
        let (cast, values, table) = (Cast { element_type, layout, scale, bias }, Arc::new(values), Arc::new(table));
        Ok(BatchWriter { size, channels: 3, cast, normalized_values: values, element_bits: table, vector })
    }

    /// Does not allocate.
    pub(crate) fn with_size(&self, size: Size) -> Self {
        BatchWriter { size, ..self.clone() }
    }

    /// Makes this writer accept images with one channel, normalized like the first of three.
    #[must_use]
    pub fn single_channel(mut self) -> Self {
        (self.channels, self.vector) = (1, None);
        self
    }

    pub(crate) fn image_bytes(&self) -> usize {
        self.size.area() as usize * self.channels
    }

    /// Returns the number of bytes of an image in the batch.
    pub fn sample_bytes(&self) -> usize {
        self.image_bytes() * self.cast.element_type.bytes()
    }

    /// Returns whether writing an image only copies its bytes.
    pub fn is_copy(&self) -> bool {
        // With one channel, both layouts are identical.
        self.cast.is_copy() || self.channels == 1 && self.cast.element_type == ElementType::U8
    }

    /// Normalizes and casts `image`, and writes it to `dst`.
    ///
    /// # Errors
    /// [`ErrorKind::Transform`] if the length of `image` or `dst` does not match the size.
    pub fn write(&self, image: &[u8], dst: &mut [u8]) -> Result<()> {
        self.check_len("an image", image.len(), self.image_bytes())?;
        self.check_len("the output row for an image", dst.len(), self.sample_bytes())?;
        if self.is_copy() {
            dst.copy_from_slice(image);
        } else {
            let vectorized_pixels = self.vector.map_or(0, |vector| vector(&self.cast, image, None, dst));
            self.write_with_table(image, dst, vectorized_pixels);
        }
        Ok(())
    }

    pub(super) fn check_rect(&self, what: &str, rect: Rect) -> Result<()> {
        if rect.width == 0 || rect.height == 0 || rect.is_within(self.size) {
            return Ok(());
        }
        let (Size { width, height }, Rect { x, y, width: columns, height: rows }) = (self.size, rect);
        Err(Error::new(
            ErrorKind::Transform,
            format!("{what}, {columns}x{rows} at ({x}, {y}), is not inside the {width}x{height} image"),
        ))
    }

    pub(super) fn check_len(&self, what: &str, actual: usize, expected: usize) -> Result<()> {
        if actual == expected {
            return Ok(());
        }
        let Size { width, height } = self.size;
        Err(Error::new(
            ErrorKind::Transform,
            format!("{what} of {width}x{height} must have {expected} bytes, but has {actual}"),
        ))
    }

    /// Writes the pixels from index `first_pixel` on, with the same bits as the SIMD code.
    fn write_with_table(&self, image: &[u8], dst: &mut [u8], first_pixel: usize) {
        match self.cast.element_type.bytes() {
            1 => self.write_elements::<1>(image, dst, first_pixel),
            2 => self.write_elements::<2>(image, dst, first_pixel),
            _ => self.write_elements::<4>(image, dst, first_pixel),
        }
    }

    fn write_elements<const B: usize>(&self, image: &[u8], dst: &mut [u8], first_pixel: usize) {
        if self.channels == 1 {
            for (out, &pixel) in dst.as_chunks_mut::<B>().0.iter_mut().zip(image) {
                *out = element::<B>(self.element_bits[0][usize::from(pixel)]);
            }
            return;
        }
        let plane = self.size.area() as usize;
        let pixels = &image.as_chunks::<3>().0[first_pixel..];
        let dst = dst.as_chunks_mut::<B>().0;
        let element = |c: usize, value: u8| element::<B>(self.element_bits[c][usize::from(value)]);
        match self.cast.layout {
            Layout::Nhwc => {
                for (target, pixel) in dst[first_pixel * 3..].as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
                    *target = [element(0, pixel[0]), element(1, pixel[1]), element(2, pixel[2])];
                }
            }
            Layout::Nchw => {
                for (c, out) in dst.chunks_exact_mut(plane).enumerate() {
                    for (target, pixel) in out[first_pixel..].iter_mut().zip(pixels) {
                        *target = element(c, pixel[c]);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rng;

    const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16];

    fn random(bytes: usize, seed: u64) -> Vec<u8> {
        let mut rng = Rng::new(seed, 0, 0);
        (0..bytes).map(|_| rng.next_u64() as u8).collect()
    }

    fn naive(writer: &BatchWriter, image: &[u8], x: usize, y: usize, c: usize) -> f32 {
        let pixel = f32::from(image[(y * writer.size.width as usize + x) * 3 + c]);
        if writer.cast.element_type == ElementType::U8 {
            pixel
        } else {
            mul_add(writer.cast.scale[c], pixel, writer.cast.bias[c])
        }
    }

    #[test]
    fn every_path_gives_the_bits_of_one_fused_multiply_add() {
        let mut rng = Rng::new(1, 0, 0);
        for case in 0..400 {
            let size = Size::new(rng.below(70) as u32 + 1, rng.below(9) as u32 + 1);
            let (dtype, layout) = (DTYPES[case % 4], [Layout::Nhwc, Layout::Nchw][case / 4 % 2]);
            let normalize =
                [Normalize::IMAGENET, Normalize::UNIT, Normalize { mean: [-3.0, 0.1, 90.0], std: [1e-3, -2.0, 7.0] }];
            let mut writer = BatchWriter::new(size, dtype, layout, normalize[case % 3]).unwrap();
            let image = random(size.area() as usize * 3, case as u64);
            // A row may have any alignment, and the surrounding bytes must not change.
            let (before, bytes) = (rng.below(33) as usize, writer.sample_bytes());
            let mut vector_row = vec![0xa5; before + bytes + 40];
            writer.write(&image, &mut vector_row[before..before + bytes]).unwrap();
            assert!(vector_row[..before].iter().chain(&vector_row[before + bytes..]).all(|&v| v == 0xa5));
            writer.vector = None;
            let mut table_row = vec![0; bytes];
            writer.write(&image, &mut table_row).unwrap();
            assert!(vector_row[before..before + bytes] == table_row, "{size:?} {dtype:?} {layout:?}");
            let (w, h, b) = (size.width as usize, size.height as usize, dtype.bytes());
            for (y, x, c) in (0..h).flat_map(|y| (0..w).flat_map(move |x| (0..3).map(move |c| (y, x, c)))) {
                let index = if layout == Layout::Nhwc { (y * w + x) * 3 + c } else { (c * h + y) * w + x };
                let bits = &table_row[index * b..][..b];
                let value = naive(&writer, &image, x, y, c);
                match dtype {
                    Dtype::U8 => assert_eq!(f32::from(bits[0]), value),
                    Dtype::F32 => assert_eq!(bits, value.to_ne_bytes()),
                    Dtype::F16 => assert_eq!(bits, half::f16::from_f32(value).to_ne_bytes()),
                    _ => assert_eq!(bits, half::bf16::from_f32(value).to_ne_bytes()),
                }
            }
        }
    }

    #[test]
    fn lengths_and_options_that_do_not_fit_are_rejected() {
        let writer = BatchWriter::new(Size::new(4, 4), Dtype::F16, Layout::Nchw, Normalize::IMAGENET).unwrap();
        let e = writer.write(&[0; 48], &mut [0; 95]).unwrap_err();
        assert_eq!(e.cause(), "the output row for an image of 4x4 must have 96 bytes, but has 95");
        assert!(writer.write(&[0; 47], &mut [0; 96]).is_err());
        let zero = Normalize { mean: [0.0; 3], std: [1.0, 0.0, 1.0] };
        assert!(BatchWriter::new(Size::new(4, 4), Dtype::F32, Layout::Nchw, zero).is_err());
        assert!(BatchWriter::new(Size::new(4, 4), Dtype::I64, Layout::Nchw, Normalize::UNIT).is_err());
    }
}
