//! AVX-512 code. The vertical pass processes 64 values of a row at a time, and the horizontal pass
//! four pixels.
//!
//! **Invariants**
//! 1. Functions marked `target_feature` are called only through [`kernels`], which checks that the
//!    CPU supports AVX-512 F, BW and VNNI, and AVX2.
//! 2. Every load and store stays inside a slice or an array. `vertical` and `resize_row`, which the
//!    macro `lanes` generates, assert the lengths of their slices before the first access.
//!    `store_pixels` limits the store to its slice.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::arch::x86_64::{
    __m512i as Vector, _mm512_broadcast_i32x4 as broadcast, _mm512_dpwssd_epi32 as add_pixels,
    _mm512_loadu_si512 as load, _mm512_loadu_si512 as load_taps, _mm512_packs_epi32 as pack_i32,
    _mm512_packus_epi16 as pack_i16, _mm512_set1_epi32 as set_i32, _mm512_setzero_si512 as zero,
    _mm512_shuffle_epi8 as shuffle, _mm512_srav_epi32 as shr_i32, _mm512_storeu_si512 as store,
    _mm512_unpackhi_epi8 as zip_high_i8, _mm512_unpacklo_epi8 as zip_low_i8,
};

use super::avx2 as narrower;
use super::kernels::Kernels;
use super::lanes::SQUEEZE;
use super::table::Table;

/// Number of pixels per accumulator vector. A pixel has four `i32` channels.
const LANES: usize = 4;

pub(super) fn kernels() -> Option<Kernels> {
    let is_supported = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx2");
    is_supported.then_some(Kernels {
        lanes: LANES,
        // SAFETY: invariant 1; the features were just detected.
        vertical: |rows, stride, taps, precision, out| unsafe { vertical(rows, stride, taps, precision, out) },
        // SAFETY: invariant 1; the features were just detected.
        horizontal: |row, table, out| unsafe { horizontal(row, table, out) },
    })
}

super::lanes::pairs!("avx2,avx512f,avx512bw,avx512vnni");
super::lanes::lanes!("avx2,avx512f,avx512bw,avx512vnni");

/// Loads 16 bytes from `from + starts[lane]` into each lane.
///
/// # Safety
/// `starts[..LANES]`, and the 16 bytes at `from + starts[lane]` for each lane, must be readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn gather(from: *const u8, starts: *const u32) -> Vector {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let load = |lane: usize| _mm_loadu_si128(from.add(*starts.add(lane) as usize).cast());
        let pixels = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(load(0)), load(1));
        _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(pixels, load(2)), load(3))
    }
}

/// Stores 16 pixels, or as many as fit into `out`. Each quarter of the vector contains four pixels
/// (12 bytes).
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_pixels(pixels: Vector, out: &mut [u8]) {
    let join = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15);
    let count = out.len().min(48);
    // SAFETY: the mask limits the store to the first `count` bytes of the slice (invariant 2).
    unsafe {
        _mm512_mask_storeu_epi8(out.as_mut_ptr().cast(), (1 << count) - 1, _mm512_permutexvar_epi32(join, pixels))
    };
}
