//! Loops that the compiler turns into vector code, for AVX2 where the CPU has it. On 64-bit Arm it
//! uses NEON, which every such CPU has.
//!
//! The code is the same for every CPU, and so are the bits: it has no fused multiply-add, and each
//! sum has one order.
//!
//! **Invariants**
//! 1. [`wide`] calls a function that is compiled for AVX2 only after checking the CPU for AVX2.
//! 2. [`whole`] converts only numbers from 0 to 255.
#![allow(unsafe_code)]

/// Defines a function twice, for any CPU and for AVX2, and calls the one that fits. What it calls
/// must be inlined, or it is compiled for any CPU.
macro_rules! wide {
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
                    // SAFETY: invariant 1 of `wide`; the feature was just detected.
                    return unsafe { with_avx2($($arg),*) };
                }
            }
            portable($($arg),*)
        }
    };
}
pub(super) use wide;

/// The whole part of `v`, at least 0 and at most 255. NaN is 0.
// `clamp` would keep NaN.
#[allow(clippy::manual_clamp)]
#[inline(always)]
pub(super) fn whole(v: f32) -> i32 {
    // SAFETY: invariant 2. `max` and `min` return the other number for NaN.
    unsafe { v.max(0.0).min(255.0).to_int_unchecked() }
}

/// `v as u8`, which becomes vector code.
#[inline(always)]
pub(super) fn level(v: f32) -> u8 {
    whole(v) as u8
}

/// Adding and subtracting it rounds a float of less than 2^22 to a whole number, and halves to
/// even.
pub(super) const ROUND: f32 = 12_582_912.0;

/// `v.floor()` for -2^22 to 2^22, which becomes vector code. Rounding gives it or the next whole
/// number.
#[inline(always)]
pub(super) fn below(v: f32) -> f32 {
    let rounded = v + ROUND - ROUND;
    if rounded > v { rounded - 1.0 } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_what_as_gives() {
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, -1.5, 1e30, -1e30, f32::MIN_POSITIVE];
        let steps = (-1000..70_000).map(|n| n as f32 / 256.0);
        for v in odd.into_iter().chain(steps) {
            assert_eq!(level(v), v as u8, "{v}");
            assert_eq!(whole(v), i32::from(v as u8), "{v}");
            if v.abs() < 4_194_304.0 {
                assert_eq!(below(v), v.floor(), "{v}");
            }
        }
    }
}
