//! A fused multiply-add that produces the same bits as a device on every platform.

/// Computes `a * b + c` with one rounding.
///
/// Without a hardware instruction, `f32::mul_add` calls the C library, which rounds twice on
/// `windows-gnu`.
pub(super) fn mul_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(all(windows, target_env = "gnu")) { mul_add_in_f64(a, b, c) } else { a.mul_add(b, c) }
}

/// Computes `a * b + c` in double precision. The product is exact. The sum is rounded to odd, so
/// the second rounding, to a float, gives the same result as a single rounding (Boldo and
/// Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
fn mul_add_in_f64(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // The exact rounding error of the sum (Knuth's TwoSum).
    let addend = sum - product;
    let rounding_error = (product - (sum - addend)) + (c - addend);
    let mut bits = sum.to_bits();
    if sum.is_finite() && rounding_error != 0.0 && bits.is_multiple_of(2) {
        let is_larger = (rounding_error > 0.0) == (sum > 0.0);
        bits = if is_larger { bits + 1 } else { bits - 1 };
    }
    f64::from_bits(bits) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rng;

    #[test]
    fn double_precision_mul_add_rounds_once() {
        // The exact sum is just below the midpoint of two floats. As a double, it would be rounded
        // to the midpoint, and then up.
        let (small, ulp) = (2f32.powi(-12), f32::EPSILON);
        let (a, b, c) = (small * (1.0 + ulp), small * (1.0 - ulp), 1.0 + ulp);
        assert_eq!((f64::from(a) * f64::from(b) + f64::from(c)) as f32, 1.0 + 2.0 * ulp);
        assert_eq!(mul_add_in_f64(a, b, c), 1.0 + ulp);
        assert_eq!(mul_add_in_f64(-a, b, -c), -1.0 - ulp);
        assert_eq!(mul_add_in_f64(f32::MAX, 2.0, -f32::MAX), f32::MAX);
        assert_eq!(mul_add_in_f64(f32::MAX, 2.0, 0.0), f32::INFINITY);
        assert!(mul_add_in_f64(f32::INFINITY, 0.0, 1.0).is_nan());
    }

    #[cfg(not(all(windows, target_env = "gnu")))]
    #[test]
    fn double_precision_mul_add_matches_the_hardware() {
        let mut rng = Rng::new(5, 0, 0);
        for _ in 0..200_000 {
            // Sums of operands of similar size cancel or come close to a midpoint.
            let mut float = || f32::from_bits(rng.next_u64() as u32 & 0x81ff_ffff | 0x3e00_0000);
            let (a, b, c) = (float(), float(), float());
            for c in [c, c * 1e-7, -a * b, c * 1e7] {
                assert_eq!(mul_add_in_f64(a, b, c).to_bits(), a.mul_add(b, c).to_bits(), "{a:e} * {b:e} + {c:e}");
            }
        }
    }
}
