//! The vector code, written once for all vector widths.
//!
//! The file of each width defines the following:
//!
//! - `Vector`, a vector of bytes, and `Sums`, a vector of 32-bit elements.
//! - `LANES`, the number of pixels per `Sums` vector.
//! - The operations on vectors, including `gather` and `store_pixels`.
//! - `narrower`, the module of the next narrower width, for rows that are shorter than a vector.
//!
//! `add_rows` and `add_pixels` differ between instruction sets. Both process two taps at a time.
//! The x86 instructions multiply and add adjacent elements, so the values for the two taps must be
//! adjacent. The NEON instructions multiply all elements by the same tap.

/// Shuffle that removes the fourth byte of each pixel.
pub(super) const SQUEEZE: [i8; 16] = [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1];

macro_rules! lanes {
    ($features:literal) => {
        /// Computes the same bits as [`scalar::vertical`](super::scalar::vertical).
        #[target_feature(enable = $features)]
        pub(super) fn vertical(rows: &[u8], stride: usize, taps: &[i16], precision: u32, out: &mut [u8]) {
            const STEP: usize = 16 * LANES;
            let length = out.len();
            if length < STEP {
                return narrower::vertical(rows, stride, taps, precision, out);
            }
            assert!(
                rows.len() >= (taps.len() - 1) * stride + length,
                "`rows` must contain `length` bytes for every tap"
            );
            let (half, shift) = (set_i32(1 << (precision - 1)), set_i32(precision as i32));
            let mut offset = 0;
            loop {
                let mut sums = [half; 4];
                let mut upper = offset;
                for taps in taps.chunks(2) {
                    let (first, second) = (taps[0], taps.get(1).copied().unwrap_or(0));
                    // The last of an odd number of rows is read twice, the second time with a
                    // coefficient of 0.
                    let lower = if taps.len() == 2 { upper + stride } else { upper };
                    debug_assert!(lower + STEP <= rows.len());
                    let rows = rows.as_ptr();
                    // SAFETY: invariant 2; both rows are among the `taps.len()` rows, and
                    // `offset + STEP` is at most `length`.
                    let (a, b) = unsafe { (load(rows.add(upper).cast()), load(rows.add(lower).cast())) };
                    sums = add_rows(sums, a, b, pair_taps(first, second));
                    upper += 2 * stride;
                }
                // SAFETY: invariant 2; `offset + STEP` is at most `length`.
                unsafe { store(out.as_mut_ptr().add(offset).cast(), narrow(sums, shift)) };
                if offset + STEP == length {
                    return;
                }
                offset = (offset + STEP).min(length - STEP);
            }
        }

        /// Computes the same bits as [`scalar::horizontal`](super::scalar::horizontal). The taps
        /// must be laid out for this width.
        #[target_feature(enable = $features)]
        fn horizontal(row: &[u8], table: &Table, out: &mut [u8]) {
            match table.max_pairs {
                1 => resize_row::<1>(row, table, out),
                2 => resize_row::<2>(row, table, out),
                3 => resize_row::<3>(row, table, out),
                4 => resize_row::<4>(row, table, out),
                _ => resize_row::<0>(row, table, out),
            }
        }

        /// Computes groups of pixels. `MAX_PAIRS` is `max_pairs` of the table, or 0 if it is not
        /// known at compile time.
        #[target_feature(enable = $features)]
        fn resize_row<const MAX_PAIRS: usize>(row: &[u8], table: &Table, out: &mut [u8]) {
            const GROUP: usize = 4 * LANES;
            let max_pairs = if MAX_PAIRS == 0 { table.max_pairs } else { MAX_PAIRS };
            let groups = table.outputs.div_ceil(GROUP);
            assert!(out.len() == table.outputs * 3 && row.len() >= table.min_row_bytes && max_pairs == table.max_pairs);
            assert!(table.starts.len() == groups * GROUP && table.pairs.len() * 4 == groups * GROUP * max_pairs);
            let (near, far, squeeze) = (shuffle_indices(&NEAR), shuffle_indices(&FAR), shuffle_indices(&SQUEEZE));
            let (half, shift) = (set_i32(1 << (table.precision - 1)), set_i32(table.precision as i32));
            for group in 0..groups {
                let mut sums = [half; 4];
                for (vector, sum) in sums.iter_mut().enumerate() {
                    let lane = (group * 4 + vector) * LANES;
                    for quad in 0..max_pairs.div_ceil(2) {
                        // SAFETY: invariant 2; `starts` has the length asserted above, and `row`
                        // has at least `min_row_bytes` bytes, which include all loads for every
                        // start (invariant of `Table`).
                        let pixels = unsafe { gather(row.as_ptr().add(quad * 12), table.starts.as_ptr().add(lane)) };
                        // SAFETY: invariant 2; `pairs` has the length asserted above, and a lane
                        // has 16 bytes.
                        let taps = |pair: usize| unsafe {
                            load_taps(
                                table.pairs.as_ptr().cast::<[i16; 8]>().add(lane * max_pairs + pair * LANES).cast(),
                            )
                        };
                        *sum = add_pixels(*sum, shuffle(pixels, near), taps(2 * quad));
                        if 2 * quad + 1 < max_pairs {
                            *sum = add_pixels(*sum, shuffle(pixels, far), taps(2 * quad + 1));
                        }
                    }
                }
                store_pixels(shuffle(narrow(sums, shift), squeeze), &mut out[group * GROUP * 3..]);
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn narrow([a, b, c, d]: [Sums; 4], shift: Sums) -> Vector {
            let low = pack_i32(shr_i32(a, shift), shr_i32(b, shift));
            let high = pack_i32(shr_i32(c, shift), shr_i32(d, shift));
            pack_i16(low, high)
        }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! pairs {
    ($features:literal) => {
        /// On x86, all vectors of integers have the same type.
        type Sums = Vector;

        /// Selects the values of pixels 0 and 1 (both red values, then green, then blue), and
        /// widens them to 16 bits.
        const NEAR: [i8; 16] = [0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1];
        /// Like `NEAR`, for pixels 2 and 3.
        const FAR: [i8; 16] = [6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1];

        #[inline]
        #[target_feature(enable = $features)]
        fn shuffle_indices(bytes: &[i8; 16]) -> Vector {
            // SAFETY: the array has 16 bytes.
            broadcast(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn pair_taps(first: i16, second: i16) -> Vector {
            set_i32(i32::from(first as u16) | i32::from(second) << 16)
        }

        /// Multiplies the bytes of each of two rows by the tap of that row, and adds the products
        /// to the sums. Each vector of sums contains a quarter of the elements.
        #[inline]
        #[target_feature(enable = $features)]
        fn add_rows([s0, s1, s2, s3]: [Sums; 4], a: Vector, b: Vector, taps: Vector) -> [Sums; 4] {
            let (low, high, zero) = (zip_low_i8(a, b), zip_high_i8(a, b), zero());
            [
                add_pixels(s0, zip_low_i8(low, zero), taps),
                add_pixels(s1, zip_high_i8(low, zero), taps),
                add_pixels(s2, zip_low_i8(high, zero), taps),
                add_pixels(s3, zip_high_i8(high, zero), taps),
            ]
        }
    };
}

pub(super) use lanes;
#[cfg(target_arch = "x86_64")]
pub(super) use pairs;
