//! Two pixels, or 32 values of a row, at a time.
//!
//! **Invariants**
//! 1. Functions marked `target_feature` run only where the CPU has AVX2:
//!    [`Backend`](super::Backend) is chosen by asking it.
//! 2. Every load and store lies in a slice whose length is asserted on entry, before the first of
//!    them.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::scalar;
use super::table::Table;

/// Pixels a vector holds.
pub(super) const LANES: usize = 2;

/// As [`scalar::vertical`], to the same bits.
#[target_feature(enable = "avx2")]
pub(super) fn vertical(rows: &[u8], stride: usize, taps: &[i16], precision: u32, out: &mut [u8]) {
    const STEP: usize = 32;
    let length = out.len();
    if length < STEP {
        return scalar::vertical(rows, stride, taps, precision, out);
    }
    assert!(rows.len() >= (taps.len() - 1) * stride + length, "every row is there in full");
    let half = _mm256_set1_epi32(1 << (precision - 1));
    let shift = _mm256_set1_epi32(precision as i32);
    let mut at = 0;
    loop {
        let mut sums = [half; 4];
        for (pair, taps) in taps.chunks(2).enumerate() {
            let (first, second) = (taps[0], taps.get(1).copied().unwrap_or(0));
            let upper = 2 * pair * stride + at;
            // An odd last row is read twice, the second time for a coefficient of 0.
            let lower = if taps.len() == 2 { upper + stride } else { upper };
            let tap = _mm256_set1_epi32(i32::from(first as u16) | i32::from(second) << 16);
            // SAFETY: invariant 2: both rows are among the `taps.len()` rows, and `at + STEP <=
            // length`.
            let (a, b) = unsafe { (load32(rows, upper), load32(rows, lower)) };
            let (low, high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
            let zero = _mm256_setzero_si256();
            sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), tap));
            sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), tap));
            sums[2] = _mm256_add_epi32(sums[2], _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), tap));
            sums[3] = _mm256_add_epi32(sums[3], _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), tap));
        }
        let bytes = narrow(sums, shift);
        // SAFETY: invariant 2, `at + STEP <= length`.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(at).cast(), bytes) };
        if at + STEP == length {
            return;
        }
        // The last step overlaps the one before it.
        at = (at + STEP).min(length - STEP);
    }
}

/// As [`scalar::horizontal`], to the same bits, with taps laid out for this backend.
#[target_feature(enable = "avx2")]
pub(super) fn horizontal(row: &[u8], table: &Table, out: &mut [u8]) {
    match table.depth {
        1 => rows::<1>(row, table, out),
        2 => rows::<2>(row, table, out),
        3 => rows::<3>(row, table, out),
        4 => rows::<4>(row, table, out),
        _ => rows::<0>(row, table, out),
    }
}

/// `DEPTH` is that of the table, or 0 if it is not known when compiling.
#[target_feature(enable = "avx2")]
fn rows<const DEPTH: usize>(row: &[u8], table: &Table, out: &mut [u8]) {
    const GROUP: usize = 4 * LANES;
    let depth = if DEPTH == 0 { table.depth } else { DEPTH };
    let groups = table.outputs.div_ceil(GROUP);
    assert!(out.len() == table.outputs * 3 && row.len() >= table.reach);
    assert!(table.starts.len() == groups * GROUP && table.pairs.len() * 4 == groups * GROUP * depth);
    // Red of pixels 0 and 1, green of both, blue of both, each widened to 16 bits; then those of
    // pixels 2 and 3.
    let near = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    let far = _mm256_broadcastsi128_si256(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    // The fourth byte of each pixel goes.
    let squeeze = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    let join = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
    let half = _mm256_set1_epi32(1 << (table.precision - 1));
    let shift = _mm256_set1_epi32(table.precision as i32);
    for group in 0..groups {
        let mut sums = [half; 4];
        for (vector, sum) in sums.iter_mut().enumerate() {
            let place = (group * 4 + vector) * LANES;
            for quad in 0..depth.div_ceil(2) {
                // SAFETY: invariant 2: `reach` covers 16 bytes from the last quad of the furthest
                // start; `starts` and `pairs` have the lengths asserted above.
                let pixels = unsafe {
                    let at =
                        |lane: usize| row.as_ptr().add(*table.starts.get_unchecked(place + lane) as usize + quad * 12);
                    let first = _mm_loadu_si128(at(0).cast());
                    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(first), _mm_loadu_si128(at(1).cast()))
                };
                // SAFETY: as above; a lane is 16 bytes.
                let taps = |pair: usize| unsafe {
                    _mm256_loadu_si256(table.pairs.as_ptr().cast::<__m128i>().add(place * depth + pair * LANES).cast())
                };
                let product = _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, near), taps(2 * quad));
                *sum = _mm256_add_epi32(*sum, product);
                if 2 * quad + 1 < depth {
                    let product = _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, far), taps(2 * quad + 1));
                    *sum = _mm256_add_epi32(*sum, product);
                }
            }
        }
        let bytes = narrow(sums, shift);
        let bytes = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(bytes, squeeze), join);
        let to = &mut out[group * GROUP * 3..];
        if to.len() >= GROUP * 3 {
            // SAFETY: invariant 2, 24 bytes are left.
            unsafe {
                _mm_storeu_si128(to.as_mut_ptr().cast(), _mm256_castsi256_si128(bytes));
                _mm_storel_epi64(to.as_mut_ptr().add(16).cast(), _mm256_extracti128_si256::<1>(bytes));
            }
        } else {
            let mut last = [0u8; 32];
            // SAFETY: invariant 2, the array has 32 bytes.
            unsafe { _mm256_storeu_si256(last.as_mut_ptr().cast(), bytes) };
            to.copy_from_slice(&last[..to.len()]);
        }
    }
}

/// Sums without their fractional bits, as bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn narrow([a, b, c, d]: [__m256i; 4], shift: __m256i) -> __m256i {
    let low = _mm256_packs_epi32(_mm256_srav_epi32(a, shift), _mm256_srav_epi32(b, shift));
    let high = _mm256_packs_epi32(_mm256_srav_epi32(c, shift), _mm256_srav_epi32(d, shift));
    _mm256_packus_epi16(low, high)
}

/// 32 bytes of `rows` from `at` on.
///
/// # Safety
/// `at + 32` is at most `rows.len()`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load32(rows: &[u8], at: usize) -> __m256i {
    debug_assert!(at + 32 <= rows.len());
    // SAFETY: the caller's.
    unsafe { _mm256_loadu_si256(rows.as_ptr().add(at).cast()) }
}
