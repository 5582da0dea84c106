//! AVX-512: four blocks at a time. What is bound by memory or by shuffles stays with AVX2.
//!
//! **Invariants**
//! - `KERNELS` is only reached through `Backend::Avx512`, which exists where the processor has
//!   AVX-512 F and BW, and AVX2.
//! - Every pointer is made from a slice whose length was asserted, in the same function, to cover
//!   all vectors read or written.

use std::arch::x86_64::*;

use super::{Kernels, avx2};
use crate::decode::jpeg::header::NATURAL;

pub(super) static KERNELS: Kernels = Kernels {
    idct_of_lanes: |coefficients, offsets, quant, samples, stride| {
        // SAFETY: the processor has AVX-512, see the invariants.
        unsafe { idct(coefficients, offsets, quant, samples, stride) }
    },
    ..avx2::KERNELS
};

/// For each place in natural order, where in zigzag order its coefficient is.
const ZIGZAG: [u16; 64] = {
    let mut zigzag = [0; 64];
    let mut i = 0;
    while i < 64 {
        zigzag[NATURAL[i] as usize] = i as u16;
        i += 1;
    }
    zigzag
};

#[target_feature(enable = "avx512f,avx512bw")]
fn idct(coefficients: &[i16], offsets: &[u32], quant: &[u16; 64], samples: &mut [u8], stride: usize) {
    assert!(offsets.is_empty() || samples.len() >= 7 * stride + 8 * offsets.len() + 24);
    // SAFETY: the halves of arrays of 64.
    let halves = |of: &[u16; 64]| unsafe {
        [_mm512_loadu_si512(of.as_ptr().cast()), _mm512_loadu_si512(of[32..].as_ptr().cast())]
    };
    let (quant, order) = (halves(quant), halves(&ZIGZAG));
    for (i, four) in offsets.chunks(4).enumerate() {
        // The last one of an incomplete four goes through again; what comes of it is padding.
        let mut natural = [[_mm512_setzero_si512(); 4]; 2];
        for block in 0..4 {
            let at = four[block.min(four.len() - 1)] as usize;
            let block_at = coefficients[at..at + 64].as_ptr();
            // SAFETY: 64 coefficients.
            let (low, high) =
                unsafe { (_mm512_loadu_si512(block_at.cast()), _mm512_loadu_si512(block_at.add(32).cast())) };
            for half in 0..2 {
                let values = _mm512_permutex2var_epi16(low, order[half], high);
                natural[half][block] = _mm512_mullo_epi16(values, quant[half]);
            }
        }
        // Four rows of one block each, to one row of four blocks.
        let mut rows = [_mm512_setzero_si512(); 8];
        for (half, [a, b, c, d]) in natural.into_iter().enumerate() {
            let (ab, cd) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
            let (ab_high, cd_high) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
            rows[4 * half] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
            rows[4 * half + 1] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
            rows[4 * half + 2] = _mm512_shuffle_i32x4::<0x88>(ab_high, cd_high);
            rows[4 * half + 3] = _mm512_shuffle_i32x4::<0xdd>(ab_high, cd_high);
        }
        pass::<11>(&mut rows);
        transpose(&mut rows);
        pass::<18>(&mut rows);
        transpose(&mut rows);
        for row in 0..4 {
            let two = _mm512_packs_epi16(rows[2 * row], rows[2 * row + 1]);
            let order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
            let two = _mm512_permutexvar_epi64(order, _mm512_xor_si512(two, _mm512_set1_epi8(-128)));
            // SAFETY: 32 samples of the last row end at `7 * stride + 32 * i + 32`, at most what
            // was asserted.
            unsafe {
                let to = samples.as_mut_ptr().add(2 * row * stride + 32 * i);
                _mm256_storeu_si256(to.cast(), _mm512_castsi512_si256(two));
                _mm256_storeu_si256(to.add(stride).cast(), _mm512_extracti64x4_epi64::<1>(two));
            }
        }
    }
}

/// Two 16-bit factors side by side, for `_mm512_madd_epi16`.
const fn pair(a: i32, b: i32) -> i32 {
    (a & 0xffff) | (b << 16)
}

/// One dimension of the transform, of a column in each 16-bit element; see `scalar::pass` for the
/// numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn pass<const SHIFT: u32>(x: &mut [__m512i; 8]) {
    let zero = _mm512_setzero_si512();
    let both = |a, b| [_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b)];
    let (sum, difference) = (_mm512_add_epi16(x[0], x[4]), _mm512_sub_epi16(x[0], x[4]));
    let (even0, even1, even23) = (both(zero, sum), both(zero, difference), both(x[2], x[6]));
    let (odd03, odd12) = (both(x[7], x[1]), both(x[5], x[3]));
    let z = both(_mm512_add_epi16(x[7], x[3]), _mm512_add_epi16(x[5], x[1]));
    let mut out = [[zero; 2]; 8];
    for half in 0..2 {
        let dot = |v: [__m512i; 2], a, b| _mm512_madd_epi16(v[half], _mm512_set1_epi32(pair(a, b)));
        let rounded =
            |v: [__m512i; 2]| _mm512_add_epi32(_mm512_srai_epi32::<3>(v[half]), _mm512_set1_epi32(1 << (SHIFT - 1)));
        let (e0, e1) = (rounded(even0), rounded(even1));
        let (e2, e3) = (dot(even23, 4433, 4433 - 15137), dot(even23, 4433 + 6270, 4433));
        let even =
            [_mm512_add_epi32(e0, e3), _mm512_add_epi32(e1, e2), _mm512_sub_epi32(e1, e2), _mm512_sub_epi32(e0, e3)];
        let (z3, z4) = (dot(z, 9633 - 16069, 9633), dot(z, 9633, 9633 - 3196));
        let odd = [
            _mm512_add_epi32(dot(odd03, -7373, 12299 - 7373), z4),
            _mm512_add_epi32(dot(odd12, -20995, 25172 - 20995), z3),
            _mm512_add_epi32(dot(odd12, 16819 - 20995, -20995), z4),
            _mm512_add_epi32(dot(odd03, 2446 - 7373, -7373), z3),
        ];
        for i in 0..4 {
            out[i][half] = _mm512_srai_epi32::<SHIFT>(_mm512_add_epi32(even[i], odd[i]));
            out[7 - i][half] = _mm512_srai_epi32::<SHIFT>(_mm512_sub_epi32(even[i], odd[i]));
        }
    }
    for (x, out) in x.iter_mut().zip(out) {
        *x = _mm512_packs_epi32(out[0], out[1]);
    }
}

/// Rows to columns, in each 128-bit quarter.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose(x: &mut [__m512i; 8]) {
    let low = |i: usize, j: usize| _mm512_unpacklo_epi16(x[i], x[j]);
    let high = |i: usize, j: usize| _mm512_unpackhi_epi16(x[i], x[j]);
    let a = [low(0, 1), high(0, 1), low(2, 3), high(2, 3), low(4, 5), high(4, 5), low(6, 7), high(6, 7)];
    let low = |i: usize, j: usize| _mm512_unpacklo_epi32(a[i], a[j]);
    let high = |i: usize, j: usize| _mm512_unpackhi_epi32(a[i], a[j]);
    let b = [low(0, 2), high(0, 2), low(1, 3), high(1, 3), low(4, 6), high(4, 6), low(5, 7), high(5, 7)];
    for i in 0..4 {
        x[2 * i] = _mm512_unpacklo_epi64(b[i], b[i + 4]);
        x[2 * i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 4]);
    }
}
