//! AVX2 code. The vertical pass processes 32 values of a row at a time, and the horizontal pass two
//! pixels.
//!
//! **Invariants**
//! 1. Functions marked `target_feature` are called only through [`kernels`], which checks that the
//!    CPU supports AVX2, or by the AVX-512 functions, which require AVX2 as well.
//! 2. Every load and store stays inside a slice or an array. `vertical` and `resize_row`, which the
//!    macro `lanes` generates, assert the lengths of their slices before the first access.
//!    `store_pixels` checks the length of its slice.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::arch::x86_64::{
    __m256i as Vector, _mm256_broadcastsi128_si256 as broadcast, _mm256_loadu_si256 as load,
    _mm256_loadu_si256 as load_taps, _mm256_packs_epi32 as pack_i32, _mm256_packus_epi16 as pack_i16,
    _mm256_set1_epi32 as set_i32, _mm256_setzero_si256 as zero, _mm256_shuffle_epi8 as shuffle,
    _mm256_srav_epi32 as shr_i32, _mm256_storeu_si256 as store, _mm256_unpackhi_epi8 as zip_high_i8,
    _mm256_unpacklo_epi8 as zip_low_i8,
};

use super::kernels::Kernels;
use super::lanes::SQUEEZE;
use super::scalar as narrower;
use super::table::Table;

const LANES: usize = 2;

pub(super) fn kernels() -> Option<Kernels> {
    is_x86_feature_detected!("avx2").then_some(Kernels {
        lanes: LANES,
        // SAFETY: invariant 1; the feature was just detected.
        vertical: |rows, stride, taps, precision, out| unsafe { vertical(rows, stride, taps, precision, out) },
        // SAFETY: invariant 1; the feature was just detected.
        horizontal: |row, table, out| unsafe { horizontal(row, table, out) },
    })
}

super::lanes::pairs!("avx2");
super::lanes::lanes!("avx2");

/// Multiplies 16-bit elements, adds adjacent products, and adds the results to `sum`.
#[inline]
#[target_feature(enable = "avx2")]
fn add_pixels(sum: Vector, values: Vector, taps: Vector) -> Vector {
    _mm256_add_epi32(sum, _mm256_madd_epi16(values, taps))
}

/// Loads 16 bytes from `from + starts[lane]` into each lane.
///
/// # Safety
/// `starts[..LANES]`, and the 16 bytes at `from + starts[lane]` for each lane, must be readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn gather(from: *const u8, starts: *const u32) -> Vector {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let load = |lane: usize| _mm_loadu_si128(from.add(*starts.add(lane) as usize).cast());
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load(0)), load(1))
    }
}

/// Stores eight pixels, or as many as fit into `out`. Each half of the vector contains four pixels
/// (12 bytes).
#[inline]
#[target_feature(enable = "avx2")]
fn store_pixels(pixels: Vector, out: &mut [u8]) {
    let pixels = _mm256_permutevar8x32_epi32(pixels, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7));
    if out.len() >= 24 {
        // SAFETY: `out` has at least 24 bytes (invariant 2).
        unsafe {
            _mm_storeu_si128(out.as_mut_ptr().cast(), _mm256_castsi256_si128(pixels));
            _mm_storel_epi64(out.as_mut_ptr().add(16).cast(), _mm256_extracti128_si256::<1>(pixels));
        }
    } else {
        let mut last = [0u8; 32];
        // SAFETY: the array has 32 bytes (invariant 2).
        unsafe { store(last.as_mut_ptr().cast(), pixels) };
        out.copy_from_slice(&last[..out.len()]);
    }
}
