//! The inverse transform of vectors of coefficients, written once for both widths.
//!
//! Each width's file defines what this code uses: `Vector`, the type `Shift` of a shift's constant,
//! and the instructions, under their names without the width. Each 128 bits of a vector hold a row
//! of one block.

/// Packs two 16-bit factors for `madd_epi16`.
pub(super) const fn pair(a: i32, b: i32) -> i32 {
    (a & 0xffff) | (b << 16)
}

macro_rules! idct {
    ($features:literal) => {
        /// One dimension of the transform, with a column in each 16-bit element. See `scalar::pass`
        /// for the constants.
        #[inline]
        #[target_feature(enable = $features)]
        fn pass<const SHIFT: Shift>(x: &mut [Vector; 8]) {
            let zero = setzero();
            let both = |a, b| [unpacklo_epi16(a, b), unpackhi_epi16(a, b)];
            let (sum, difference) = (add_epi16(x[0], x[4]), sub_epi16(x[0], x[4]));
            let (even0, even1, even23) = (both(zero, sum), both(zero, difference), both(x[2], x[6]));
            let (odd03, odd12) = (both(x[7], x[1]), both(x[5], x[3]));
            let z = both(add_epi16(x[7], x[3]), add_epi16(x[5], x[1]));
            let mut out = [[zero; 2]; 8];
            for half in 0..2 {
                let dot = |v: [Vector; 2], a, b| madd_epi16(v[half], set1_epi32(pair(a, b)));
                let rounded = |v: [Vector; 2]| add_epi32(srai_epi32::<3>(v[half]), set1_epi32(1 << (SHIFT - 1)));
                let (e0, e1) = (rounded(even0), rounded(even1));
                let (e2, e3) = (dot(even23, 4433, 4433 - 15137), dot(even23, 4433 + 6270, 4433));
                let even = [add_epi32(e0, e3), add_epi32(e1, e2), sub_epi32(e1, e2), sub_epi32(e0, e3)];
                let (z3, z4) = (dot(z, 9633 - 16069, 9633), dot(z, 9633, 9633 - 3196));
                let odd = [
                    add_epi32(dot(odd03, -7373, 12299 - 7373), z4),
                    add_epi32(dot(odd12, -20995, 25172 - 20995), z3),
                    add_epi32(dot(odd12, 16819 - 20995, -20995), z4),
                    add_epi32(dot(odd03, 2446 - 7373, -7373), z3),
                ];
                for i in 0..4 {
                    out[i][half] = srai_epi32::<SHIFT>(add_epi32(even[i], odd[i]));
                    out[7 - i][half] = srai_epi32::<SHIFT>(sub_epi32(even[i], odd[i]));
                }
            }
            for (x, out) in x.iter_mut().zip(out) {
                *x = packs_epi32(out[0], out[1]);
            }
        }

        /// Transposes rows and columns, in each 128 bits.
        #[inline]
        #[target_feature(enable = $features)]
        fn transpose(x: &mut [Vector; 8]) {
            let low = |i: usize, j: usize| unpacklo_epi16(x[i], x[j]);
            let high = |i: usize, j: usize| unpackhi_epi16(x[i], x[j]);
            let a = [low(0, 1), high(0, 1), low(2, 3), high(2, 3), low(4, 5), high(4, 5), low(6, 7), high(6, 7)];
            let low = |i: usize, j: usize| unpacklo_epi32(a[i], a[j]);
            let high = |i: usize, j: usize| unpackhi_epi32(a[i], a[j]);
            let b = [low(0, 2), high(0, 2), low(1, 3), high(1, 3), low(4, 6), high(4, 6), low(5, 7), high(5, 7)];
            for i in 0..4 {
                x[2 * i] = unpacklo_epi64(b[i], b[i + 4]);
                x[2 * i + 1] = unpackhi_epi64(b[i], b[i + 4]);
            }
        }
    };
}
pub(super) use idct;
