//! NEON code. The vertical pass processes 16 values of a row at a time, and the horizontal pass one
//! pixel.
//!
//! **Invariants**
//! 1. Functions marked `target_feature` are called only through [`kernels`], which checks that the
//!    CPU supports NEON.
//! 2. Every load and store stays inside a slice or an array. `vertical` and `resize_row`, which the
//!    macro `lanes` generates, assert the lengths of their slices before the first access.
//!    `store_pixels` checks the length of its slice.
#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::arch::aarch64::{
    int32x4_t as Sums, uint8x16_t as Vector, vdupq_n_s32 as set_i32, vld1_s16 as load_taps, vld1q_u8 as load,
    vqtbl1q_u8 as shuffle, vst1q_u8 as store,
};
use std::arch::is_aarch64_feature_detected;

use super::kernels::Kernels;
use super::lanes::SQUEEZE;
use super::scalar as narrower;
use super::table::Table;

const LANES: usize = 1;

pub(super) fn kernels() -> Option<Kernels> {
    is_aarch64_feature_detected!("neon").then_some(Kernels {
        lanes: LANES,
        // SAFETY: invariant 1; the feature was just detected.
        vertical: |rows, stride, taps, precision, out| unsafe { vertical(rows, stride, taps, precision, out) },
        // SAFETY: invariant 1; the feature was just detected.
        horizontal: |row, table, out| unsafe { horizontal(row, table, out) },
    })
}

super::lanes::lanes!("neon");

/// Selects pixels 0 and 1, adds a fourth channel to each, and widens the channels to 16 bits.
const NEAR: [i8; 16] = [0, -1, 1, -1, 2, -1, -1, -1, 3, -1, 4, -1, 5, -1, -1, -1];
/// Like `NEAR`, for pixels 2 and 3.
const FAR: [i8; 16] = [6, -1, 7, -1, 8, -1, -1, -1, 9, -1, 10, -1, 11, -1, -1, -1];

/// Loads the indices of a shuffle. A negative index makes the shuffle write 0.
#[inline]
#[target_feature(enable = "neon")]
fn shuffle_indices(bytes: &[i8; 16]) -> Vector {
    // SAFETY: the array has 16 bytes.
    vreinterpretq_u8_s8(unsafe { vld1q_s8(bytes.as_ptr()) })
}

fn pair_taps(first: i16, second: i16) -> [i16; 2] {
    [first, second]
}

/// Multiplies the bytes of each of two rows by the tap of that row, and adds the products to the
/// sums. Each vector of sums contains a quarter of the elements.
#[inline]
#[target_feature(enable = "neon")]
fn add_rows([s0, s1, s2, s3]: [Sums; 4], a: Vector, b: Vector, taps: [i16; 2]) -> [Sums; 4] {
    let low = [a, b].map(|row| vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(row))));
    let high = [a, b].map(|row| vreinterpretq_s16_u16(vmovl_high_u8(row)));
    let first = |sum, v: [int16x8_t; 2]| {
        vmlal_n_s16(vmlal_n_s16(sum, vget_low_s16(v[0]), taps[0]), vget_low_s16(v[1]), taps[1])
    };
    let second = |sum, v: [int16x8_t; 2]| vmlal_high_n_s16(vmlal_high_n_s16(sum, v[0], taps[0]), v[1], taps[1]);
    [first(s0, low), second(s1, low), first(s2, high), second(s3, high)]
}

#[inline]
#[target_feature(enable = "neon")]
fn add_pixels(sum: Sums, pixels: Vector, taps: int16x4_t) -> Sums {
    let pixels = vreinterpretq_s16_u8(pixels);
    vmlal_high_lane_s16::<1>(vmlal_lane_s16::<0>(sum, vget_low_s16(pixels), taps), pixels, taps)
}

#[inline]
#[target_feature(enable = "neon")]
fn shr_i32(v: Sums, bits: Sums) -> Sums {
    vshlq_s32(v, vnegq_s32(bits))
}

#[inline]
#[target_feature(enable = "neon")]
fn pack_i32(low: Sums, high: Sums) -> int16x8_t {
    vqmovn_high_s32(vqmovn_s32(low), high)
}

#[inline]
#[target_feature(enable = "neon")]
fn pack_i16(low: int16x8_t, high: int16x8_t) -> Vector {
    vqmovun_high_s16(vqmovun_s16(low), high)
}

/// Loads 16 bytes from `from + *starts`.
///
/// # Safety
/// `*starts` and the 16 bytes at `from + *starts` must be readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn gather(from: *const u8, starts: *const u32) -> Vector {
    // SAFETY: guaranteed by the caller.
    unsafe { load(from.add(*starts as usize)) }
}

/// Stores four pixels (12 bytes), or as many as fit into `out`. If `out` has at least 16 bytes, the
/// store also writes the four bytes after the pixels, which the next call overwrites.
#[inline]
#[target_feature(enable = "neon")]
fn store_pixels(pixels: Vector, out: &mut [u8]) {
    if out.len() >= 16 {
        // SAFETY: `out` has at least 16 bytes (invariant 2).
        unsafe { store(out.as_mut_ptr(), pixels) };
    } else {
        let mut last = [0u8; 16];
        // SAFETY: the array has 16 bytes (invariant 2).
        unsafe { store(last.as_mut_ptr(), pixels) };
        let count = out.len().min(12);
        out[..count].copy_from_slice(&last[..count]);
    }
}
