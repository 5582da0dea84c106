//! The SIMD code for NEON. Eight floats occupy two vectors.
//!
//! **Invariants**
//! 1. Functions marked `target_feature` run only through `choose`, which checks the CPU for NEON.
//! 2. Loads and stores are unaligned. Each goes through a reference to an array or slice that is at
//!    least as wide as the access.
#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::arch::aarch64::{float32x4x2_t as Floats, uint8x16_t as Bytes};
use std::arch::is_aarch64_feature_detected;

super::lanes::lanes!("neon", is_aarch64_feature_detected!("neon"));

#[inline]
#[target_feature(enable = "neon")]
fn from_array(v: [f32; 8]) -> Floats {
    // SAFETY: the array has 32 bytes (invariant 2).
    unsafe { vld1q_f32_x2(v.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn splat(v: f32) -> Floats {
    float32x4x2_t(vdupq_n_f32(v), vdupq_n_f32(v))
}

#[inline]
#[target_feature(enable = "neon")]
fn mul_add(a: Floats, b: Floats, c: Floats) -> Floats {
    float32x4x2_t(vfmaq_f32(c.0, a.0, b.0), vfmaq_f32(c.1, a.1, b.1))
}

#[inline]
#[target_feature(enable = "neon")]
fn mul(a: Floats, b: Floats) -> Floats {
    float32x4x2_t(vmulq_f32(a.0, b.0), vmulq_f32(a.1, b.1))
}

#[inline]
#[target_feature(enable = "neon")]
fn add(a: Floats, b: Floats) -> Floats {
    float32x4x2_t(vaddq_f32(a.0, b.0), vaddq_f32(a.1, b.1))
}

#[inline]
#[target_feature(enable = "neon")]
fn lower(bytes: Bytes) -> i64 {
    vgetq_lane_s64::<0>(vreinterpretq_s64_u8(bytes))
}

#[inline]
#[target_feature(enable = "neon")]
fn upper(bytes: Bytes) -> i64 {
    vgetq_lane_s64::<1>(vreinterpretq_s64_u8(bytes))
}

#[inline]
#[target_feature(enable = "neon")]
fn widen(bytes: i64) -> Floats {
    let words = vmovl_u8(vcreate_u8(bytes as u64));
    float32x4x2_t(vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))), vcvtq_f32_u32(vmovl_high_u16(words)))
}

#[inline]
#[target_feature(enable = "neon")]
fn deinterleave(pixels: &[u8; 3 * STEP]) -> [Bytes; 3] {
    // SAFETY: the reference points to 48 bytes (invariant 2).
    let uint8x16x3_t(red, green, blue) = unsafe { vld3q_u8(pixels.as_ptr()) };
    [red, green, blue]
}

#[inline]
#[target_feature(enable = "neon")]
fn store16(value: Bytes, out: &mut [u8]) {
    let out = &mut out[..16];
    // SAFETY: the slice has 16 bytes (invariant 2).
    unsafe { vst1q_u8(out.as_mut_ptr(), value) };
}

#[inline]
#[target_feature(enable = "neon")]
fn store<const ELEMENT: u8>(value: Floats, out: &mut [u8]) {
    match ELEMENT {
        F32 => {
            store16(vreinterpretq_u8_f32(value.0), out);
            store16(vreinterpretq_u8_f32(value.1), &mut out[16..]);
        }
        U8 => {
            let sum = add(value, splat(BELOW_HALF));
            let (low, high) = (vcvtq_u32_f32(sum.0), vcvtq_u32_f32(sum.1));
            let bytes = vmovn_u16(vmovn_high_u32(vmovn_u32(low), high));
            out[..8].copy_from_slice(&vget_lane_u64::<0>(vreinterpret_u64_u8(bytes)).to_le_bytes());
        }
        F16 => store16(vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(value.0), value.1)), out),
        _ => {
            // Add 0x7fff plus the lowest kept bit to round to nearest even. Values are never NaN.
            let rounded = [value.0, value.1].map(|value| {
                let bits = vreinterpretq_u32_f32(value);
                let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
                vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)))
            });
            store16(vreinterpretq_u8_u16(vshrn_high_n_u32::<16>(vshrn_n_u32::<16>(rounded[0]), rounded[1])), out);
        }
    }
}
