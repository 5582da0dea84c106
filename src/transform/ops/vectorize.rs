//! Loops that the compiler turns into vector code, for AVX2 if the CPU supports it, and for NEON on
//! 64-bit Arm. The results are the same on every CPU, because no fused multiply-adds are used, and
//! because each sum is computed in a fixed order.
//!
//! **Invariants**
//! 1. [`vectorize!`] calls a function that is compiled for AVX2 only if the CPU supports AVX2.
//! 2. [`truncate_to_level`] clamps to 0..=255 before the unchecked conversion.
#![allow(unsafe_code)]

/// Defines a function. On x86-64, its body is compiled twice, for any CPU and for AVX2, and the
/// function selects a version at run time. Functions that are called in its inner loops should be
/// inlined, because a function that is not inlined is compiled only once, without AVX2.
macro_rules! vectorize {
    (
        $(#[doc = $doc:literal])*
        $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block
    ) => {
        $(#[doc = $doc])*
        #[allow(unsafe_code)]
        $vis fn $name($($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            fn portable($($arg: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn with_avx2($($arg: $type),*) $(-> $result)? {
                    portable($($arg),*)
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: invariant 1 of `vectorize`; the feature was just detected.
                    return unsafe { with_avx2($($arg),*) };
                }
            }
            portable($($arg),*)
        }
    };
}
pub(super) use vectorize;

/// Clamps `v` to 0 to 255 and truncates it. NaN becomes 0, while `clamp` would preserve it.
#[allow(clippy::manual_clamp)]
#[inline(always)]
pub(super) fn truncate_to_level(v: f32) -> i32 {
    // SAFETY: the number is from 0 to 255 (invariant 2). If `v` is NaN, `max` returns 0.
    unsafe { v.max(0.0).min(255.0).to_int_unchecked() }
}

/// Converts like `v as u8`, but vectorizes.
#[inline(always)]
pub(super) fn level(v: f32) -> u8 {
    truncate_to_level(v) as u8
}

/// Adding and subtracting this number rounds a float of magnitude less than 2^22 to an integer,
/// half to even.
pub(super) const ROUND: f32 = 12_582_912.0;

/// Computes `v.floor()` for numbers from -2^22 to 2^22, but vectorizes.
#[inline(always)]
pub(super) fn fast_floor(v: f32) -> f32 {
    let rounded = v + ROUND - ROUND;
    if rounded > v { rounded - 1.0 } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_equals_a_cast_to_u8() {
        let special_values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, -1.5, 1e30, -1e30, f32::MIN_POSITIVE];
        let steps = (-1000..70_000).map(|n| n as f32 / 256.0);
        for v in special_values.into_iter().chain(steps) {
            assert_eq!(level(v), v as u8, "{v}");
            assert_eq!(truncate_to_level(v), i32::from(v as u8), "{v}");
            if v.abs() < 4_194_304.0 {
                assert_eq!(fast_floor(v), v.floor(), "{v}");
            }
        }
    }
}
