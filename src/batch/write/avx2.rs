//! The SIMD code for AVX2.
//!
//! **Invariants**
//! 1. Functions marked `target_feature` run only through `choose`, which checks the CPU for AVX2,
//!    FMA and F16C.
//! 2. Loads and stores are unaligned. Each goes through a reference to an array or slice that is at
//!    least as wide as the access.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::arch::x86_64::{
    __m128i as Bytes, __m256 as Floats, _mm_cvtsi128_si64 as lower, _mm256_add_ps as add, _mm256_fmadd_ps as mul_add,
    _mm256_mul_ps as mul, _mm256_set1_ps as splat,
};

super::lanes::lanes!(
    "avx2,fma,f16c",
    (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c"))
);

#[inline]
#[target_feature(enable = "avx2")]
fn from_array([a, b, c, d, e, f, g, h]: [f32; 8]) -> Floats {
    _mm256_setr_ps(a, b, c, d, e, f, g, h)
}

#[inline]
#[target_feature(enable = "avx2")]
fn upper(bytes: Bytes) -> i64 {
    _mm_cvtsi128_si64(_mm_unpackhi_epi64(bytes, bytes))
}

#[inline]
#[target_feature(enable = "avx2")]
fn widen(bytes: i64) -> Floats {
    _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn deinterleave(pixels: &[u8; 3 * STEP]) -> [Bytes; 3] {
    // Byte `i` of channel `c` is byte `3 * i + c` of the 48 bytes. `channel_shuffle` returns the
    // shuffle that moves vector `v`'s bytes of channel `c` to their final positions and sets the
    // other bytes to
    // 0. The bitwise OR of the three results is the channel.
    const fn channel_shuffle(c: usize, v: usize) -> [u8; 16] {
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
    const CHANNEL_SHUFFLES: [[[u8; 16]; 3]; 3] = [
        [channel_shuffle(0, 0), channel_shuffle(0, 1), channel_shuffle(0, 2)],
        [channel_shuffle(1, 0), channel_shuffle(1, 1), channel_shuffle(1, 2)],
        [channel_shuffle(2, 0), channel_shuffle(2, 1), channel_shuffle(2, 2)],
    ];
    let vectors = pixels.as_chunks::<16>().0;
    let [a, b, c] = [load16(&vectors[0]), load16(&vectors[1]), load16(&vectors[2])];
    CHANNEL_SHUFFLES.map(|[x, y, z]| {
        let (x, y) = (_mm_shuffle_epi8(a, load16(&x)), _mm_shuffle_epi8(b, load16(&y)));
        _mm_or_si128(_mm_or_si128(x, y), _mm_shuffle_epi8(c, load16(&z)))
    })
}

#[inline]
#[target_feature(enable = "avx2")]
fn load16(bytes: &[u8; 16]) -> Bytes {
    // SAFETY: the reference points to 16 bytes (invariant 2).
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store16(value: Bytes, out: &mut [u8]) {
    let out = &mut out[..16];
    // SAFETY: the slice has 16 bytes (invariant 2).
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), value) }
}

/// Stores eight elements. For `u8`, the values must be from 0 to 255, and ties round up.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn store<const ELEMENT: u8>(value: Floats, out: &mut [u8]) {
    match ELEMENT {
        F32 => {
            let out = &mut out[..32];
            // SAFETY: the slice has 32 bytes (invariant 2).
            unsafe { _mm256_storeu_ps(out.as_mut_ptr().cast(), value) }
        }
        U8 => {
            let truncated = _mm256_cvttps_epi32(_mm256_add_ps(value, _mm256_set1_ps(BELOW_HALF)));
            let words = _mm_packus_epi32(_mm256_castsi256_si128(truncated), _mm256_extracti128_si256::<1>(truncated));
            out[..8].copy_from_slice(&_mm_cvtsi128_si64(_mm_packus_epi16(words, words)).to_le_bytes());
        }
        F16 => store16(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value), out),
        _ => {
            // Add 0x7fff plus the lowest kept bit to round to nearest even. Values are never NaN.
            let bits = _mm256_castps_si256(value);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let upper = _mm256_srli_epi32::<16>(rounded);
            store16(_mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256::<1>(upper)), out);
        }
    }
}
