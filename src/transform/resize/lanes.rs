//! The vector code, written once for both widths.
//!
//! Each width's file defines what this code uses: `Vector`; `LANES`, the pixels in a vector; the
//! instructions, under their names without the width; `dot`, `gather` and `store_pixels`, which
//! differ between widths; and `narrower`, for rows shorter than a vector.

macro_rules! lanes {
    ($features:literal) => {
        /// Like [`scalar::vertical`](super::scalar::vertical), bit for bit.
        #[target_feature(enable = $features)]
        pub(super) fn vertical(rows: &[u8], stride: usize, taps: &[i16], precision: u32, out: &mut [u8]) {
            const STEP: usize = 16 * LANES;
            let length = out.len();
            if length < STEP {
                return narrower::vertical(rows, stride, taps, precision, out);
            }
            assert!(rows.len() >= (taps.len() - 1) * stride + length, "every row is there in full");
            let (half, shift) = (set1_epi32(1 << (precision - 1)), set1_epi32(precision as i32));
            let zero = setzero();
            let mut at = 0;
            loop {
                let (mut s0, mut s1, mut s2, mut s3) = (half, half, half, half);
                let mut upper = at;
                for taps in taps.chunks(2) {
                    let (first, second) = (taps[0], taps.get(1).copied().unwrap_or(0));
                    // An odd last row is read twice, the second time with a coefficient of 0.
                    let lower = if taps.len() == 2 { upper + stride } else { upper };
                    let tap = set1_epi32(i32::from(first as u16) | i32::from(second) << 16);
                    debug_assert!(lower + STEP <= rows.len());
                    let rows = rows.as_ptr();
                    // SAFETY: invariant 2: both rows are among the `taps.len()` rows, and `at +
                    // STEP <= length`.
                    let (a, b) = unsafe { (loadu(rows.add(upper).cast()), loadu(rows.add(lower).cast())) };
                    let (low, high) = (unpacklo_epi8(a, b), unpackhi_epi8(a, b));
                    s0 = dot(s0, unpacklo_epi8(low, zero), tap);
                    s1 = dot(s1, unpackhi_epi8(low, zero), tap);
                    s2 = dot(s2, unpacklo_epi8(high, zero), tap);
                    s3 = dot(s3, unpackhi_epi8(high, zero), tap);
                    upper += 2 * stride;
                }
                // SAFETY: invariant 2, `at + STEP <= length`.
                unsafe { storeu(out.as_mut_ptr().add(at).cast(), narrow([s0, s1, s2, s3], shift)) };
                if at + STEP == length {
                    return;
                }
                // The last step overlaps the previous one.
                at = (at + STEP).min(length - STEP);
            }
        }

        /// Like [`scalar::horizontal`](super::scalar::horizontal), bit for bit, with taps laid out
        /// for this width.
        #[target_feature(enable = $features)]
        fn horizontal(row: &[u8], table: &Table, out: &mut [u8]) {
            match table.depth {
                1 => rows::<1>(row, table, out),
                2 => rows::<2>(row, table, out),
                3 => rows::<3>(row, table, out),
                4 => rows::<4>(row, table, out),
                _ => rows::<0>(row, table, out),
            }
        }

        /// `DEPTH` is the depth of the table, or 0 if it is not known at compile time.
        #[target_feature(enable = $features)]
        fn rows<const DEPTH: usize>(row: &[u8], table: &Table, out: &mut [u8]) {
            const GROUP: usize = 4 * LANES;
            let depth = if DEPTH == 0 { table.depth } else { DEPTH };
            let groups = table.outputs.div_ceil(GROUP);
            assert!(out.len() == table.outputs * 3 && row.len() >= table.reach && depth == table.depth);
            assert!(table.starts.len() == groups * GROUP && table.pairs.len() * 4 == groups * GROUP * depth);
            // Red of pixels 0 and 1, green of both, blue of both, each widened to 16 bits; then the
            // same of pixels 2 and 3.
            let near = broadcast(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
            let far = broadcast(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
            // Drops the fourth byte of each pixel.
            let squeeze = broadcast(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
            let (half, shift) = (set1_epi32(1 << (table.precision - 1)), set1_epi32(table.precision as i32));
            for group in 0..groups {
                let mut sums = [half; 4];
                for (vector, sum) in sums.iter_mut().enumerate() {
                    let place = (group * 4 + vector) * LANES;
                    for quad in 0..depth.div_ceil(2) {
                        // SAFETY: invariant 2: `starts` and `pairs` have the lengths asserted
                        // above; `row` has `reach` bytes, which cover 16 bytes from the last quad
                        // of every start (the table's invariant).
                        let pixels = unsafe { gather(row.as_ptr().add(quad * 12), table.starts.as_ptr().add(place)) };
                        // SAFETY: as above; a lane is 16 bytes.
                        let taps = |pair: usize| unsafe {
                            loadu(table.pairs.as_ptr().cast::<__m128i>().add(place * depth + pair * LANES).cast())
                        };
                        *sum = dot(*sum, shuffle_epi8(pixels, near), taps(2 * quad));
                        if 2 * quad + 1 < depth {
                            *sum = dot(*sum, shuffle_epi8(pixels, far), taps(2 * quad + 1));
                        }
                    }
                }
                store_pixels(shuffle_epi8(narrow(sums, shift), squeeze), &mut out[group * GROUP * 3..]);
            }
        }

        /// Drops the fractional bits of the sums and packs them into bytes.
        #[inline]
        #[target_feature(enable = $features)]
        fn narrow([a, b, c, d]: [Vector; 4], shift: Vector) -> Vector {
            let low = packs_epi32(srav_epi32(a, shift), srav_epi32(b, shift));
            let high = packs_epi32(srav_epi32(c, shift), srav_epi32(d, shift));
            packus_epi16(low, high)
        }
    };
}
pub(super) use lanes;
