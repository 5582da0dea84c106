//! Converts decoded frames to RGB.
//!
//! A pixel is a linear function of its luma and its chroma, clamped to 0 to 255. The function
//! depends on the matrix and the range of the stream. It is computed in fixed point with 20
//! fractional bits, and rounded once. Chroma is not interpolated, so a chroma sample applies to all
//! pixels that it covers. By default, swscale (and thus torchcodec and PyAV) does the same with
//! 8-bit video of even size.
//!
//! The conversion takes one multiplication per luma sample and four per pair of chroma samples,
//! because all pixel rows that a chroma row covers share its terms.
//!
//! **Source.** ITU-T H.273, sections 8.3 and 8.4.
//!
//! # Safety invariants
//!
//! 1. A function with a target feature is called only if the CPU supports the feature.
#![allow(unsafe_code, reason = "see the safety invariants above")]

use std::ops::Range;

use crate::error::{Error, Result, reserve};
use crate::frame::{Coding, Layout, Plane, Planes};

const FRACTION_BITS: u32 = 20;

/// An area of a frame, in pixels: left, top, width, height.
pub type Area = (usize, usize, usize, usize);

/// Memory that conversions reuse.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The sum of all terms except luma's, for red, green and blue, for each pixel of a row.
    chroma_terms: [Vec<i32>; 3],
    /// A row of pixels, one per word.
    pixels: Vec<u32>,
    /// The planes of interleaved chroma.
    chroma_planes: [Vec<u8>; 2],
}

/// Coefficients of the linear function. The weights have 20 fractional bits.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Weights {
    /// Weight of luma.
    pub luma: i32,
    /// The luma of black.
    pub black: i32,
    /// The chroma sample for gray.
    pub center: i32,
    /// Weight of Cr in red.
    pub red_v: i32,
    /// Weight of Cr in green.
    pub green_v: i32,
    /// Weight of Cb in green.
    pub green_u: i32,
    /// Weight of Cb in blue.
    pub blue_u: i32,
}

fn luma_weights(matrix: u16) -> Result<(f64, f64)> {
    Ok(match matrix {
        1 => (0.2126, 0.0722),
        // An unspecified matrix means BT.601, as in swscale.
        2 | 5 | 6 => (0.299, 0.114),
        4 => (0.30, 0.11),
        7 => (0.212, 0.087),
        9 | 10 => (0.2627, 0.0593),
        _ => {
            return Err(Error::unsupported(format!(
                "matrix_coefficients={matrix}: expected 0 (RGB, only without subsampling), 1 (BT.709), 2 (unspecified), 4 (FCC), 5 or 6 \
                 (BT.601), 7 (SMPTE 240M), 9 or 10 (BT.2020)"
            )));
        }
    })
}

impl Weights {
    /// Returns the coefficients for a frame of luma and chroma, or of luma alone.
    ///
    /// # Errors
    /// If the frame has chroma, and its matrix is 0 (the planes are RGB) or not supported.
    pub fn for_frame(frame: &Planes<'_>) -> Result<Self> {
        if frame.layout.shifts().is_some() {
            return Self::new(frame.coding);
        }
        // Without chroma, the matrix is irrelevant.
        let weights = Self::new(Coding { matrix: 2, ..frame.coding })?;
        Ok(Weights { red_v: 0, green_v: 0, green_u: 0, blue_u: 0, ..weights })
    }

    fn new(coding: Coding) -> Result<Self> {
        let (red, blue) = luma_weights(coding.matrix)?;
        let green = 1.0 - red - blue;
        let scale = f64::from(1 << (coding.bits - 8));
        let max_value = f64::from((1 << coding.bits) - 1);
        let (luma, chroma) = match coding.is_full_range {
            true => (255.0 / max_value, 255.0 / max_value),
            false => (255.0 / (219.0 * scale), 255.0 / (224.0 * scale)),
        };
        let to_fixed_point = |weight: f64| (weight * f64::from(1 << FRACTION_BITS)).round() as i32;
        Ok(Weights {
            luma: to_fixed_point(luma),
            black: if coding.is_full_range { 0 } else { 16 << (coding.bits - 8) },
            center: 128 << (coding.bits - 8),
            red_v: to_fixed_point(2.0 * (1.0 - red) * chroma),
            green_v: to_fixed_point(-2.0 * red * (1.0 - red) / green * chroma),
            green_u: to_fixed_point(-2.0 * blue * (1.0 - blue) / green * chroma),
            blue_u: to_fixed_point(2.0 * (1.0 - blue) * chroma),
        })
    }

    /// Returns the number to add to the weighted samples: one half for rounding, minus the weighted
    /// luma of black.
    pub fn offset(&self) -> i32 {
        (1 << (FRACTION_BITS - 1)) - self.black * self.luma
    }
}

trait Sample: Copy {
    fn to_i32(self) -> i32;
}

impl Sample for u8 {
    #[inline(always)]
    fn to_i32(self) -> i32 {
        self.into()
    }
}

impl Sample for u16 {
    #[inline(always)]
    fn to_i32(self) -> i32 {
        self.into()
    }
}

/// Computes the sum of all terms except luma's for a row of pixels. The first sample also covers
/// `first_skipped` pixels to the left of the area.
#[inline(always)]
fn compute_chroma_terms<S: Sample>(
    u: &[S],
    v: &[S],
    shift: u32,
    first_skipped: usize,
    weights: &Weights,
    terms: &mut [Vec<i32>; 3],
) {
    let offset = weights.offset();
    let term = |channel: usize, u: S, v: S| {
        let (u, v) = (u.to_i32() - weights.center, v.to_i32() - weights.center);
        match channel {
            0 => offset + v * weights.red_v,
            1 => offset + v * weights.green_v + u * weights.green_u,
            _ => offset + u * weights.blue_u,
        }
    };
    for (channel, terms) in terms.iter_mut().enumerate() {
        if shift == 0 {
            for (out, (&u, &v)) in terms.iter_mut().zip(u.iter().zip(v)) {
                *out = term(channel, u, v);
            }
            continue;
        }
        if first_skipped > 0 {
            terms[0] = term(channel, u[0], v[0]);
        }
        // The compiler vectorizes writes of pairs. The last sample may cover a single pixel of the
        // area.
        let (u, v) = (&u[first_skipped..], &v[first_skipped..]);
        let (pairs, single) = terms[first_skipped..].as_chunks_mut::<2>();
        for (pair, (&u, &v)) in pairs.iter_mut().zip(u.iter().zip(v)) {
            *pair = [term(channel, u, v); 2];
        }
        if let [single] = single {
            *single = term(channel, u[pairs.len()], v[pairs.len()]);
        }
    }
}

/// Computes a row of pixels. Each word contains red in its lowest byte, then green and blue.
#[inline(always)]
fn compute_row<S: Sample>(luma: &[S], weight: i32, terms: &[Vec<i32>; 3], pixels: &mut [u32]) {
    let [red, green, blue] = terms;
    let terms = red.iter().zip(green).zip(blue);
    for ((pixel, &luma), ((&red, &green), &blue)) in pixels.iter_mut().zip(luma).zip(terms) {
        let luma = luma.to_i32() * weight;
        let [red, green, blue] = [red, green, blue].map(|term| ((luma + term) >> FRACTION_BITS).clamp(0, 255) as u32);
        *pixel = red | green << 8 | blue << 16;
    }
}

#[inline(always)]
fn pack_rgb(pixels: &[u32], out: &mut [u8]) {
    for (out, pixel) in out.as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
        let [red, green, blue, _] = pixel.to_le_bytes();
        *out = [red, green, blue];
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn pack_rgb_avx2(pixels: &[u32], out: &mut [u8]) {
    use std::arch::x86_64::*;
    // In each half, the bytes of four pixels come first, so that the halves can be combined.
    let byte_order = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    let byte_order = _mm256_broadcastsi128_si256(byte_order);
    let word_order = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7);
    let mut start = 0;
    // Each store writes 32 bytes, and the next one overwrites the last 8.
    while start + 11 <= pixels.len() {
        let (pixel_words, target) = (&pixels[start..start + 8], &mut out[start * 3..start * 3 + 32]);
        // SAFETY: the slices have at least 32 bytes.
        let pixel_words = unsafe { _mm256_loadu_si256(pixel_words.as_ptr().cast()) };
        let packed = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(pixel_words, byte_order), word_order);
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(target.as_mut_ptr().cast(), packed) };
        start += 8;
    }
    pack_rgb(&pixels[start..], &mut out[start * 3..]);
}

#[inline(always)]
fn convert_rows<S: Sample>(
    planes: [(&[S], usize); 3],
    shifts: Option<(u32, u32)>,
    (left, top, width, height): Area,
    weights: &Weights,
    scratch: &mut Scratch,
    out: &mut [u8],
    pack_rgb: impl Fn(&[u32], &mut [u8]),
) {
    let [luma, u, v] = planes;
    let Scratch { chroma_terms: terms, pixels, .. } = scratch;
    if shifts.is_none() {
        let offset = weights.offset();
        terms.iter_mut().for_each(|terms| terms.fill(offset));
    }
    let mut last_row = None;
    for (y, out) in (top..top + height).zip(out.chunks_exact_mut(width * 3)) {
        if let Some((x_shift, y_shift)) = shifts {
            let row = y >> y_shift;
            if last_row != Some(row) {
                last_row = Some(row);
                let (first, end) = (left >> x_shift, ((left + width - 1) >> x_shift) + 1);
                let sample_range = |stride: usize| row * stride + first..row * stride + end;
                let first_skipped = left & ((1 << x_shift) - 1);
                compute_chroma_terms(
                    &u.0[sample_range(u.1)],
                    &v.0[sample_range(v.1)],
                    x_shift,
                    first_skipped,
                    weights,
                    terms,
                );
            }
        }
        compute_row(&luma.0[y * luma.1 + left..][..width], weights.luma, terms, pixels);
        pack_rgb(pixels, out);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn convert_rows_avx2<S: Sample>(
    planes: [(&[S], usize); 3],
    shifts: Option<(u32, u32)>,
    area: Area,
    weights: &Weights,
    scratch: &mut Scratch,
    out: &mut [u8],
) {
    convert_rows(planes, shifts, area, weights, scratch, out, |pixels, out| pack_rgb_avx2(pixels, out));
}

fn convert_rows_with_best_packing<S: Sample>(
    planes: [(&[S], usize); 3],
    shifts: Option<(u32, u32)>,
    area: Area,
    weights: &Weights,
    scratch: &mut Scratch,
    out: &mut [u8],
) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: invariant 1.
        return unsafe { convert_rows_avx2(planes, shifts, area, weights, scratch, out) };
    }
    convert_rows(planes, shifts, area, weights, scratch, out, pack_rgb);
}

/// Converts an area of a frame to RGB, with three bytes per pixel and no padding between rows.
///
/// # Errors
///
/// If the matrix is not supported, or if an allocation fails.
///
/// # Panics
///
/// If the area is empty or not inside the frame, or if `out` does not have the size of the area.
pub fn to_rgb(frame: &Planes<'_>, area: Area, scratch: &mut Scratch, out: &mut [u8]) -> Result<()> {
    let (left, top, width, height) = area;
    assert!(width > 0 && height > 0, "the area is empty");
    assert!(left + width <= frame.width && top + height <= frame.height, "the area is not inside the frame");
    assert_eq!(out.len(), width * height * 3, "the output has the wrong length");
    if frame.coding.matrix == 0 && frame.layout.shifts() == Some((0, 0)) {
        return convert_rgb_planes(frame, area, out);
    }
    let weights = Weights::for_frame(frame)?;
    for terms in &mut scratch.chroma_terms {
        reserve(terms, width.saturating_sub(terms.len()))?;
        terms.resize(width, 0);
    }
    let missing = width.saturating_sub(scratch.pixels.len());
    reserve(&mut scratch.pixels, missing)?;
    scratch.pixels.resize(width, 0);
    let shifts = frame.layout.shifts();
    match frame.planes[0] {
        Plane::Bits8(..) => {
            let mut planes = frame.planes.map(|plane| match plane {
                Plane::Bits8(samples, stride) => (samples, stride),
                Plane::Bits16(..) => (&[][..], 0),
            });
            let mut chroma = std::mem::take(&mut scratch.chroma_planes);
            if frame.layout == Layout::Nv12 {
                let size = frame.size(1);
                deinterleave_chroma(planes[1], size, top / 2..(top + height).div_ceil(2), &mut chroma)?;
                (planes[1], planes[2]) = ((&chroma[0][..], size.0), (&chroma[1][..], size.0));
            }
            convert_rows_with_best_packing(planes, shifts, area, &weights, scratch, out);
            scratch.chroma_planes = chroma;
        }
        Plane::Bits16(..) => {
            let planes = frame.planes.map(|plane| match plane {
                Plane::Bits16(samples, stride) => (samples, stride),
                Plane::Bits8(..) => (&[][..], 0),
            });
            convert_rows_with_best_packing(planes, shifts, area, &weights, scratch, out);
        }
    }
    Ok(())
}

/// Separates some rows of interleaved chroma into two planes of the given size.
fn deinterleave_chroma(
    (samples, stride): (&[u8], usize),
    (width, height): (usize, usize),
    rows: Range<usize>,
    planes: &mut [Vec<u8>; 2],
) -> Result<()> {
    for plane in &mut *planes {
        reserve(plane, (width * height).saturating_sub(plane.len()))?;
        plane.resize(width * height, 0);
    }
    let [u, v] = planes;
    for row in rows {
        let pairs = samples[row * stride..][..2 * width].as_chunks::<2>().0;
        let target = row * width..(row + 1) * width;
        for ((u, v), pair) in u[target.clone()].iter_mut().zip(&mut v[target]).zip(pairs) {
            [*u, *v] = *pair;
        }
    }
    Ok(())
}

fn convert_rgb_planes(frame: &Planes<'_>, (left, top, width, height): Area, out: &mut [u8]) -> Result<()> {
    // The range applies to each plane, so each is converted like luma.
    let weights = Weights::new(Coding { matrix: 2, ..frame.coding })?;
    let offset = weights.offset();
    for (plane, channel) in [(0, 1), (1, 2), (2, 0)] {
        for (y, out) in (top..top + height).zip(out.chunks_exact_mut(width * 3)) {
            for (x, out) in (left..left + width).zip(out.as_chunks_mut::<3>().0) {
                let sample = i32::from(frame.sample(plane, x, y));
                out[channel] = ((sample * weights.luma + offset) >> FRACTION_BITS).clamp(0, 255) as u8;
            }
        }
    }
    Ok(())
}
