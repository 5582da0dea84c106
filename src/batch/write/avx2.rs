//! Vector path for AVX2, with eight elements at a time.
//!
//! **Invariants**
//! 1. Functions marked `target_feature` run only through [`choose`], which checks the CPU for AVX2,
//!    FMA and F16C.
//! 2. Loads and stores are unaligned, and each goes through a reference to an array or slice of at
//!    least its width.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::cast::{Blend, Cast, Kind, Vector};
use crate::batch::Layout;

/// Number of pixels per step: 48 bytes, three vectors of 16.
const STEP: usize = 16;

/// The vector path, if this CPU supports it.
pub(super) fn choose() -> Option<Vector> {
    let able = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    // SAFETY: invariant 1; the features were just detected.
    able.then_some(|cast, image, blend, dst| unsafe { write(cast, image, blend, dst) })
}

#[target_feature(enable = "avx2,fma,f16c")]
fn write(cast: &Cast, image: &[u8], blend: Option<Blend<'_>>, dst: &mut [u8]) -> usize {
    let pixels = image.as_chunks::<{ 3 * STEP }>().0;
    match blend {
        None if cast.is_copy() => return 0,
        None => run::<false>(cast, pixels, pixels, 1.0, dst),
        Some(Blend { partner, weight }) => run::<true>(cast, pixels, partner.as_chunks().0, weight, dst),
    }
    pixels.len() * STEP
}

/// With `MIX`, each value is `weight` times its own plus `1 - weight` times that of `partners`.
#[target_feature(enable = "avx2,fma,f16c")]
fn run<const MIX: bool>(
    cast: &Cast,
    pixels: &[[u8; 3 * STEP]],
    partners: &[[u8; 3 * STEP]],
    weight: f32,
    dst: &mut [u8],
) {
    match (cast.layout, cast.kind) {
        (Layout::Nhwc, Kind::U8) => interleaved::<U8, MIX>(cast, pixels, partners, weight, dst),
        (Layout::Nhwc, Kind::F32) => interleaved::<F32, MIX>(cast, pixels, partners, weight, dst),
        (Layout::Nhwc, Kind::F16) => interleaved::<F16, MIX>(cast, pixels, partners, weight, dst),
        (Layout::Nhwc, Kind::Bf16) => interleaved::<BF16, MIX>(cast, pixels, partners, weight, dst),
        (Layout::Nchw, Kind::U8) => planar::<U8, MIX>(cast, pixels, partners, weight, dst),
        (Layout::Nchw, Kind::F32) => planar::<F32, MIX>(cast, pixels, partners, weight, dst),
        (Layout::Nchw, Kind::F16) => planar::<F16, MIX>(cast, pixels, partners, weight, dst),
        (Layout::Nchw, Kind::Bf16) => planar::<BF16, MIX>(cast, pixels, partners, weight, dst),
    }
}

// The values of `Kind`, for use as a const parameter.
const U8: u8 = Kind::U8 as u8;
const F32: u8 = Kind::F32 as u8;
const F16: u8 = Kind::F16 as u8;
const BF16: u8 = Kind::Bf16 as u8;

/// Number of bytes per element.
const fn width(kind: u8) -> usize {
    match kind {
        U8 => 1,
        F32 => 4,
        _ => 2,
    }
}

/// Writes NHWC. The channels stay interleaved, so scale and bias come in three repeating vectors.
#[target_feature(enable = "avx2,fma,f16c")]
fn interleaved<const KIND: u8, const MIX: bool>(
    cast: &Cast,
    pixels: &[[u8; 3 * STEP]],
    partners: &[[u8; 3 * STEP]],
    weight: f32,
    dst: &mut [u8],
) {
    let around = |v: &[f32; 3], first: usize| {
        let [a, b, c, d, e, f, g, h] = std::array::from_fn(|lane| v[(first + lane) % 3]);
        _mm256_setr_ps(a, b, c, d, e, f, g, h)
    };
    let scale = [around(&cast.scale, 0), around(&cast.scale, 8), around(&cast.scale, 16)];
    let bias = [around(&cast.bias, 0), around(&cast.bias, 8), around(&cast.bias, 16)];
    let images = pixels.iter().zip(partners).zip(dst.chunks_exact_mut(3 * STEP * width(KIND)));
    for ((own, partner), to) in images {
        let (own, partner) = (own.as_chunks::<8>().0, partner.as_chunks::<8>().0);
        for (i, to) in to.chunks_exact_mut(8 * width(KIND)).enumerate() {
            let pair = [own[i], partner[i]].map(i64::from_le_bytes);
            store::<KIND>(value::<MIX>(pair, scale[i % 3], bias[i % 3], weight), to);
        }
    }
}

/// Writes NCHW, after splitting 16 pixels into their channels.
#[target_feature(enable = "avx2,fma,f16c")]
fn planar<const KIND: u8, const MIX: bool>(
    cast: &Cast,
    pixels: &[[u8; 3 * STEP]],
    partners: &[[u8; 3 * STEP]],
    weight: f32,
    dst: &mut [u8],
) {
    let plane = dst.len() / 3;
    let (red, rest) = dst.split_at_mut(plane);
    let (green, blue) = rest.split_at_mut(plane);
    let step = STEP * width(KIND);
    let planes = red.chunks_exact_mut(step).zip(green.chunks_exact_mut(step)).zip(blue.chunks_exact_mut(step));
    let scale = cast.scale.map(|v| _mm256_set1_ps(v));
    let bias = cast.bias.map(|v| _mm256_set1_ps(v));
    for ((own, partner), ((red, green), blue)) in pixels.iter().zip(partners).zip(planes) {
        let own = deinterleave(own);
        let partner = if MIX { deinterleave(partner) } else { own };
        for (c, to) in [red, green, blue].into_iter().enumerate() {
            if KIND == U8 && !MIX {
                store16(own[c], to);
                continue;
            }
            let (low, high) = to.split_at_mut(step / 2);
            let pair = [own[c], partner[c]];
            let lower = pair.map(|v| _mm_cvtsi128_si64(v));
            let upper = pair.map(|v| _mm_cvtsi128_si64(_mm_unpackhi_epi64(v, v)));
            store::<KIND>(value::<MIX>(lower, scale[c], bias[c], weight), low);
            store::<KIND>(value::<MIX>(upper, scale[c], bias[c], weight), high);
        }
    }
}

/// Computes eight values from eight bytes of an image and of its partner.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn value<const MIX: bool>([own, partner]: [i64; 2], scale: __m256, bias: __m256, weight: f32) -> __m256 {
    let own = _mm256_fmadd_ps(widen(own), scale, bias);
    if !MIX {
        return own;
    }
    let partner = _mm256_fmadd_ps(widen(partner), scale, bias);
    // Two products and a sum, each rounded, as on the device. A fused multiply-add would differ.
    let (a, b) = (_mm256_set1_ps(weight), _mm256_set1_ps(1.0 - weight));
    _mm256_add_ps(_mm256_mul_ps(partner, b), _mm256_mul_ps(own, a))
}

/// Converts eight bytes to floats.
#[inline]
#[target_feature(enable = "avx2")]
fn widen(bytes: i64) -> __m256 {
    _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes)))
}

/// Splits 16 pixels into their red, green and blue bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn deinterleave(pixels: &[u8; 3 * STEP]) -> [__m128i; 3] {
    // Byte i of channel c is byte 3 i + c of the 48. `take` is a shuffle that gathers those in
    // vector `v` and zeroes the other positions.
    const fn take(c: usize, v: usize) -> [u8; 16] {
        let mut mask = [0x80; 16];
        let mut i = 0;
        while i < 16 {
            if (3 * i + c) / 16 == v {
                mask[i] = ((3 * i + c) % 16) as u8;
            }
            i += 1;
        }
        mask
    }
    const TAKE: [[[u8; 16]; 3]; 3] = [
        [take(0, 0), take(0, 1), take(0, 2)],
        [take(1, 0), take(1, 1), take(1, 2)],
        [take(2, 0), take(2, 1), take(2, 2)],
    ];
    let parts = pixels.as_chunks::<16>().0;
    let [a, b, c] = [load16(&parts[0]), load16(&parts[1]), load16(&parts[2])];
    TAKE.map(|[x, y, z]| {
        let (x, y) = (_mm_shuffle_epi8(a, load16(&x)), _mm_shuffle_epi8(b, load16(&y)));
        _mm_or_si128(_mm_or_si128(x, y), _mm_shuffle_epi8(c, load16(&z)))
    })
}

#[inline]
#[target_feature(enable = "avx2")]
fn load16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: invariant 2, the reference is to 16 bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Stores to the first 16 bytes of `to`.
#[inline]
#[target_feature(enable = "avx2")]
fn store16(value: __m128i, to: &mut [u8]) {
    let to = &mut to[..16];
    // SAFETY: invariant 2, the slice has 16 bytes.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), value) }
}

/// The float just below 0.5. Added to a number from 0 to 255, it reaches the next whole number
/// exactly if the number's fraction is at least 0.5. Adding 0.5 itself would take 0.49999997 to 1.
const BELOW_HALF: f32 = 0.5f32.next_down();

/// Casts eight floats and stores them to the first bytes of `to`. Values cast to bytes must be 0 to
/// 255, and halves are rounded up.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn store<const KIND: u8>(value: __m256, to: &mut [u8]) {
    match KIND {
        F32 => {
            let to = &mut to[..32];
            // SAFETY: invariant 2, the slice has 32 bytes.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr().cast(), value) }
        }
        U8 => {
            let whole = _mm256_cvttps_epi32(_mm256_add_ps(value, _mm256_set1_ps(BELOW_HALF)));
            let words = _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256::<1>(whole));
            to[..8].copy_from_slice(&_mm_cvtsi128_si64(_mm_packus_epi16(words, words)).to_le_bytes());
        }
        F16 => store16(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value), to),
        _ => {
            // Rounds to nearest even: adds half of the truncated part, less one if the last
            // remaining bit is even. NaN does not occur here.
            let bits = _mm256_castps_si256(value);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let upper = _mm256_srli_epi32::<16>(rounded);
            store16(_mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256::<1>(upper)), to);
        }
    }
}
