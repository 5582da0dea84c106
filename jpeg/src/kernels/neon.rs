//! NEON code that processes one block, or eight to sixteen samples, at a time.
//!
//! **Invariants**
//! - Functions marked `target_feature` are called only through `kernels`, which checks that the CPU
//!   supports NEON.
//! - Every pointer comes from a slice. The function that creates the pointer, or its caller,
//!   asserts that the slice covers all vectors that are read or written.

use std::arch::aarch64::*;
use std::arch::aarch64::{
    int16x8_t as Vector, int32x4_t as Sums, uint8x16_t as Bytes, vaddq_s16 as add_i16, vaddq_s32 as add_i32,
    vdupq_n_s16 as set_i16, vdupq_n_s32 as set_i32, vmulq_s16 as mul_i16, vorrq_s16 as or, vshrq_n_s16 as shr_i16,
    vshrq_n_s32 as shr_i32, vsubq_s16 as sub_i16, vsubq_s32 as sub_i32, vzip1q_s16 as zip_low_i16,
    vzip2q_s16 as zip_high_i16,
};
use std::arch::is_aarch64_feature_detected;

use super::functions::Kernels;
use super::rows::NATURAL_SHUFFLES;

type Shift = i32;
const BLOCKS: usize = 1;
const SAMPLES: usize = 8;

super::idct::transform!("neon");
super::rows::rows!("neon", is_aarch64_feature_detected!("neon"));

type Pairs = [Vector; 2];

fn pairs(a: Vector, b: Vector) -> Pairs {
    [a, b]
}

#[inline]
#[target_feature(enable = "neon")]
fn dot(v: Pairs, half: usize, a: i32, b: i32) -> Sums {
    let (a, b) = (a as i16, b as i16);
    if half == 0 {
        vmlal_n_s16(vmull_n_s16(vget_low_s16(v[0]), a), vget_low_s16(v[1]), b)
    } else {
        vmlal_high_n_s16(vmull_high_n_s16(v[0], a), v[1], b)
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn scaled(v: Pairs, half: usize) -> Sums {
    if half == 0 { vshll_n_s16::<13>(vget_low_s16(v[1])) } else { vshll_high_n_s16::<13>(v[1]) }
}

#[inline]
#[target_feature(enable = "neon")]
fn zero() -> Vector {
    set_i16(0)
}

#[inline]
#[target_feature(enable = "neon")]
fn narrow(first: Sums, second: Sums) -> Vector {
    vqmovn_high_s32(vqmovn_s32(first), second)
}

#[inline]
#[target_feature(enable = "neon")]
fn shr_u16<const SHIFT: Shift>(v: Vector) -> Vector {
    vreinterpretq_s16_u16(vshrq_n_u16::<SHIFT>(vreinterpretq_u16_s16(v)))
}

#[inline]
#[target_feature(enable = "neon")]
fn zip_low_i32(a: Vector, b: Vector) -> Vector {
    vreinterpretq_s16_s32(vzip1q_s32(vreinterpretq_s32_s16(a), vreinterpretq_s32_s16(b)))
}

#[inline]
#[target_feature(enable = "neon")]
fn zip_high_i32(a: Vector, b: Vector) -> Vector {
    vreinterpretq_s16_s32(vzip2q_s32(vreinterpretq_s32_s16(a), vreinterpretq_s32_s16(b)))
}

#[inline]
#[target_feature(enable = "neon")]
fn zip_low_i64(a: Vector, b: Vector) -> Vector {
    vreinterpretq_s16_s64(vzip1q_s64(vreinterpretq_s64_s16(a), vreinterpretq_s64_s16(b)))
}

#[inline]
#[target_feature(enable = "neon")]
fn zip_high_i64(a: Vector, b: Vector) -> Vector {
    vreinterpretq_s16_s64(vzip2q_s64(vreinterpretq_s64_s16(a), vreinterpretq_s64_s16(b)))
}

/// Loads eight coefficients from `a`. Wider vectors load a second block from the other pointer.
///
/// # Safety
/// Eight coefficients must be readable at `a`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load_rows(a: *const i16, _: *const i16) -> Vector {
    // SAFETY: guaranteed by the caller.
    unsafe { vld1q_s16(a) }
}

/// Stores two rows of samples, `stride` apart, of one block.
///
/// # Safety
/// Eight samples must be writable at `out`, and eight at `out + stride`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store_rows(upper: Vector, lower: Vector, out: *mut u8, stride: usize) {
    let two = vreinterpretq_u8_s8(vqmovn_high_s16(vqmovn_s16(upper), lower));
    let two = veorq_u8(two, vdupq_n_u8(0x80));
    // SAFETY: guaranteed by the caller.
    unsafe {
        vst1_u8(out, vget_low_u8(two));
        vst1_u8(out.add(stride), vget_high_u8(two));
    }
}

/// Rearranges the bytes: byte `i` of the result is the byte at index `indices[i]`, or 0 if that
/// index is negative. Uses only the first sixteen indices.
#[inline]
#[target_feature(enable = "neon")]
fn shuffle(v: Vector, indices: &[i8; 32]) -> Vector {
    // SAFETY: the array has 32 bytes.
    let indices = vreinterpretq_u8_s8(unsafe { vld1q_s8(indices.as_ptr()) });
    vreinterpretq_s16_s8(vqtbl1q_s8(vreinterpretq_s8_s16(v), indices))
}

#[inline]
#[target_feature(enable = "neon")]
fn load_widened(row: &[u8], offset: usize) -> Vector {
    // SAFETY: the slice is 8 bytes long.
    vreinterpretq_s16_u16(vmovl_u8(unsafe { vld1_u8(row[offset..offset + 8].as_ptr()) }))
}

#[inline]
#[target_feature(enable = "neon")]
fn store_pairs(even: Vector, odd: Vector, out: &mut [u8]) {
    let out = out[..16].as_mut_ptr();
    // SAFETY: the slice is 16 bytes long.
    unsafe { vst1q_u8(out, vreinterpretq_u8_s16(vsliq_n_s16::<8>(even, odd))) };
}

#[inline]
#[target_feature(enable = "neon")]
fn store_low(samples: Vector, out: &mut [u8]) {
    let out = out[..8].as_mut_ptr();
    // SAFETY: the slice is 8 bytes long.
    unsafe { vst1_u8(out, vmovn_u16(vreinterpretq_u16_s16(samples))) };
}

#[inline]
#[target_feature(enable = "neon")]
fn pack(first: Vector, second: Vector) -> Bytes {
    vqmovun_high_s16(vqmovun_s16(first), second)
}

#[inline]
#[target_feature(enable = "neon")]
fn mul_high_twice(v: Vector, factor: i16) -> Vector {
    vqdmulhq_n_s16(v, factor)
}

/// Does nothing, because Rust has no stable prefetch intrinsic for Arm.
fn prefetch(_: &[u8], _: usize) {}

#[inline]
#[target_feature(enable = "neon")]
fn interleave([red, green, blue]: [Bytes; 3], out: &mut [u8]) {
    let out = out[..48].as_mut_ptr();
    // SAFETY: the slice is 48 bytes long.
    unsafe { vst3q_u8(out, uint8x16x3_t(red, green, blue)) };
}

#[target_feature(enable = "neon")]
fn expand(masks: &[u64], dc: &[i16], values: &[u8], blocks: &mut [i16]) {
    super::scalar::expand(masks, dc, values, blocks);
}
