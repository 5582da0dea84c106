//! The inverse transform on vectors of coefficients, written once for all vector widths.
//!
//! The transform is libjpeg's accurate integer transform; `scalar` documents its source and
//! constants. Each 128-bit group in a vector contains one row of a block, so a pass transforms the
//! eight columns of each block at once. The blocks are transposed after each pass.
//!
//! The module of each instruction set defines the following: `Vector`, with 16-bit elements;
//! `Sums`, with half as many 32-bit elements; `Shift`, the type of the constant in shift
//! intrinsics; and the operations on these types.
//!
//! `dot` returns the sums of two products for one half of the elements. x86 multiplies and adds
//! adjacent elements, so `pairs` first interleaves the two vectors. NEON uses two separate vectors,
//! so its `pairs` returns them unchanged.

macro_rules! transform {
    ($features:literal) => {
        /// Transforms one column in each 16-bit element. See `scalar::pass`.
        #[inline]
        #[target_feature(enable = $features)]
        fn pass<const SHIFT: Shift>(x: &mut [Vector; 8]) {
            let (sum, difference) = (add_i16(x[0], x[4]), sub_i16(x[0], x[4]));
            let (even0, even1, even23) = (pairs(zero(), sum), pairs(zero(), difference), pairs(x[2], x[6]));
            let (odd03, odd12) = (pairs(x[7], x[1]), pairs(x[5], x[3]));
            let z = pairs(add_i16(x[7], x[3]), add_i16(x[5], x[1]));
            let mut out = [[set_i32(0); 2]; 8];
            for half in 0..2 {
                let dot = |v: Pairs, a, b| dot(v, half, a, b);
                let rounded = |v: Pairs| add_i32(scaled(v, half), set_i32(1 << (SHIFT - 1)));
                let (e0, e1) = (rounded(even0), rounded(even1));
                let (e2, e3) = (dot(even23, 4433, 4433 - 15137), dot(even23, 4433 + 6270, 4433));
                let even = [add_i32(e0, e3), add_i32(e1, e2), sub_i32(e1, e2), sub_i32(e0, e3)];
                let (z3, z4) = (dot(z, 9633 - 16069, 9633), dot(z, 9633, 9633 - 3196));
                let odd = [
                    add_i32(dot(odd03, -7373, 12299 - 7373), z4),
                    add_i32(dot(odd12, -20995, 25172 - 20995), z3),
                    add_i32(dot(odd12, 16819 - 20995, -20995), z4),
                    add_i32(dot(odd03, 2446 - 7373, -7373), z3),
                ];
                for i in 0..4 {
                    out[i][half] = shr_i32::<SHIFT>(add_i32(even[i], odd[i]));
                    out[7 - i][half] = shr_i32::<SHIFT>(sub_i32(even[i], odd[i]));
                }
            }
            for (x, out) in x.iter_mut().zip(out) {
                *x = narrow(out[0], out[1]);
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn transpose(x: &mut [Vector; 8]) {
            let low = |i: usize, j: usize| zip_low_i16(x[i], x[j]);
            let high = |i: usize, j: usize| zip_high_i16(x[i], x[j]);
            let a = [low(0, 1), high(0, 1), low(2, 3), high(2, 3), low(4, 5), high(4, 5), low(6, 7), high(6, 7)];
            let low = |i: usize, j: usize| zip_low_i32(a[i], a[j]);
            let high = |i: usize, j: usize| zip_high_i32(a[i], a[j]);
            let b = [low(0, 2), high(0, 2), low(1, 3), high(1, 3), low(4, 6), high(4, 6), low(5, 7), high(5, 7)];
            for i in 0..4 {
                x[2 * i] = zip_low_i64(b[i], b[i + 4]);
                x[2 * i + 1] = zip_high_i64(b[i], b[i + 4]);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! pairs {
    ($features:literal) => {
        type Sums = Vector;
        type Pairs = [Vector; 2];

        #[inline]
        #[target_feature(enable = $features)]
        fn pairs(a: Vector, b: Vector) -> Pairs {
            [zip_low_i16(a, b), zip_high_i16(a, b)]
        }

        /// Returns, for one half of the elements, `a` times the first vector plus `b` times the
        /// second vector.
        #[inline]
        #[target_feature(enable = $features)]
        fn dot(v: Pairs, half: usize, a: i32, b: i32) -> Sums {
            madd_i16(v[half], set_i32((a & 0xffff) | (b << 16)))
        }

        /// Multiplies one half of the second vector by 2^13. The first vector must be zero.
        #[inline]
        #[target_feature(enable = $features)]
        fn scaled(v: Pairs, half: usize) -> Sums {
            shr_i32::<3>(v[half])
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use pairs;
pub(super) use transform;
