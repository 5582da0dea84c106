//! Four pixels, or 64 values of a row, at a time.
//!
//! **Invariants**
//! 1. Functions marked `target_feature` run only where the CPU has AVX-512 F, BW and VNNI:
//!    [`Backend`](super::Backend) is chosen by asking it.
//! 2. Every load and store lies in a slice whose length is asserted on entry, before the first of
//!    them.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::avx2;
use super::table::Table;

/// Pixels a vector holds.
pub(super) const LANES: usize = 4;

/// Whether this CPU can run the functions of this file.
pub(super) fn supported() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx2")
}

/// As [`scalar::vertical`](super::scalar::vertical), to the same bits.
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vnni")]
pub(super) fn vertical(rows: &[u8], stride: usize, taps: &[i16], precision: u32, out: &mut [u8]) {
    const STEP: usize = 64;
    let length = out.len();
    if length < STEP {
        return avx2::vertical(rows, stride, taps, precision, out);
    }
    assert!(rows.len() >= (taps.len() - 1) * stride + length, "every row is there in full");
    let half = _mm512_set1_epi32(1 << (precision - 1));
    let shift = _mm512_set1_epi32(precision as i32);
    let zero = _mm512_setzero_si512();
    let mut at = 0;
    loop {
        let (mut s0, mut s1, mut s2, mut s3) = (half, half, half, half);
        let mut upper = at;
        for taps in taps.chunks(2) {
            let (first, second) = (taps[0], taps.get(1).copied().unwrap_or(0));
            // An odd last row is read twice, the second time for a coefficient of 0.
            let lower = if taps.len() == 2 { upper + stride } else { upper };
            let tap = _mm512_set1_epi32(i32::from(first as u16) | i32::from(second) << 16);
            debug_assert!(lower + STEP <= rows.len());
            // SAFETY: invariant 2: both rows are among the `taps.len()` rows, and `at + STEP <=
            // length`.
            let (a, b) = unsafe {
                (
                    _mm512_loadu_si512(rows.as_ptr().add(upper).cast()),
                    _mm512_loadu_si512(rows.as_ptr().add(lower).cast()),
                )
            };
            let (low, high) = (_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b));
            s0 = _mm512_dpwssd_epi32(s0, _mm512_unpacklo_epi8(low, zero), tap);
            s1 = _mm512_dpwssd_epi32(s1, _mm512_unpackhi_epi8(low, zero), tap);
            s2 = _mm512_dpwssd_epi32(s2, _mm512_unpacklo_epi8(high, zero), tap);
            s3 = _mm512_dpwssd_epi32(s3, _mm512_unpackhi_epi8(high, zero), tap);
            upper += 2 * stride;
        }
        // SAFETY: invariant 2, `at + STEP <= length`.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(at).cast(), narrow([s0, s1, s2, s3], shift)) };
        if at + STEP == length {
            return;
        }
        // The last step overlaps the one before it.
        at = (at + STEP).min(length - STEP);
    }
}

/// As [`scalar::horizontal`](super::scalar::horizontal), to the same bits, with taps laid out for
/// this backend.
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vnni")]
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
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vnni")]
fn rows<const DEPTH: usize>(row: &[u8], table: &Table, out: &mut [u8]) {
    const GROUP: usize = 4 * LANES;
    let depth = if DEPTH == 0 { table.depth } else { DEPTH };
    let groups = table.outputs.div_ceil(GROUP);
    assert!(out.len() == table.outputs * 3 && row.len() >= table.reach);
    assert!(table.starts.len() == groups * GROUP && table.pairs.len() * 4 == groups * GROUP * depth);
    // Red of pixels 0 and 1, green of both, blue of both, each widened to 16 bits; then those of
    // pixels 2 and 3.
    let near = _mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    let far = _mm512_broadcast_i32x4(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    // The fourth byte of each pixel goes.
    let squeeze = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    let join = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15);
    let half = _mm512_set1_epi32(1 << (table.precision - 1));
    let shift = _mm512_set1_epi32(table.precision as i32);
    for group in 0..groups {
        let mut sums = [half; 4];
        for (vector, sum) in sums.iter_mut().enumerate() {
            let place = (group * 4 + vector) * LANES;
            for quad in 0..depth.div_ceil(2) {
                // SAFETY: invariant 2: `reach` covers 16 bytes from the last quad of the furthest
                // start; `starts` and `pairs` have the lengths asserted above.
                let pixels = unsafe {
                    let load = |lane: usize| {
                        let start = *table.starts.get_unchecked(place + lane) as usize;
                        _mm_loadu_si128(row.as_ptr().add(start + quad * 12).cast())
                    };
                    let pixels = _mm512_castsi128_si512(load(0));
                    let pixels = _mm512_inserti32x4::<1>(pixels, load(1));
                    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(pixels, load(2)), load(3))
                };
                // SAFETY: as above; a lane is 16 bytes.
                let taps = |pair: usize| unsafe {
                    _mm512_loadu_si512(table.pairs.as_ptr().cast::<__m128i>().add(place * depth + pair * LANES).cast())
                };
                *sum = _mm512_dpwssd_epi32(*sum, _mm512_shuffle_epi8(pixels, near), taps(2 * quad));
                if 2 * quad + 1 < depth {
                    *sum = _mm512_dpwssd_epi32(*sum, _mm512_shuffle_epi8(pixels, far), taps(2 * quad + 1));
                }
            }
        }
        let bytes = _mm512_permutexvar_epi32(join, _mm512_shuffle_epi8(narrow(sums, shift), squeeze));
        let to = &mut out[group * GROUP * 3..];
        let left = to.len().min(GROUP * 3);
        // SAFETY: invariant 2, the mask keeps to the `left` bytes of the slice.
        unsafe { _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), (1 << left) - 1, bytes) };
    }
}

/// Sums without their fractional bits, as bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn narrow([a, b, c, d]: [__m512i; 4], shift: __m512i) -> __m512i {
    let low = _mm512_packs_epi32(_mm512_srav_epi32(a, shift), _mm512_srav_epi32(b, shift));
    let high = _mm512_packs_epi32(_mm512_srav_epi32(c, shift), _mm512_srav_epi32(d, shift));
    _mm512_packus_epi16(low, high)
}
