//! Transform, upsampling and color conversion on vectors, written once for AVX2 and NEON.
//!
//! The module of each instruction set defines the following, in addition to the items that
//! [`idct`](super::idct) needs: `BLOCKS`, the number of blocks per vector; `SAMPLES`, the number of
//! 16-bit elements per vector; `Bytes`, a vector of the same width with twice as many samples; and
//! the operations that load, pack and store samples.
//!
//! **Invariants**
//! - Functions marked `target_feature` are called only through `kernels`, which checks
//!   `is_supported`.
//! - Every pointer comes from a slice. The function that creates the pointer asserts that the slice
//!   covers all vectors that are read or written.

use crate::header::NATURAL;

/// For each row in natural order and each group of eight coefficients in zigzag order, the shuffle
/// that moves coefficients of the group to their positions in the row. The sixteen bytes of a
/// shuffle are repeated for both halves of a vector.
pub(super) const NATURAL_SHUFFLES: [[[i8; 32]; 8]; 8] = {
    let mut sort = [[[-1; 32]; 8]; 8];
    let mut k = 0;
    while k < 64 {
        let (row, column) = (NATURAL[k] as usize / 8, NATURAL[k] as usize % 8);
        let mut byte = 0;
        while byte < 4 {
            sort[row][k / 8][byte / 2 * 16 + 2 * column + byte % 2] = (2 * (k % 8) + byte % 2) as i8;
            byte += 1;
        }
        k += 1;
    }
    sort
};

macro_rules! row {
    ($zigzag:ident, $row:literal: $first:literal $($from:literal)*) => {{
        let shuffled = |from: usize| shuffle($zigzag[from], &NATURAL_SHUFFLES[$row][from]);
        let row = shuffled($first);
        $(let row = or(row, shuffled($from));)*
        row
    }};
}

macro_rules! rows {
    ($features:literal, $is_supported:expr) => {
        pub(super) fn kernels() -> Option<Kernels> {
            $is_supported.then_some(Kernels {
                // SAFETY: the CPU has the features (see the invariants of `rows`).
                idct: |coefficients, offsets, quant, samples, stride| unsafe {
                    idct::<false>(coefficients, offsets, quant, samples, stride)
                },
                // SAFETY: as above.
                idct_zigzag: |coefficients, offsets, quant, samples, stride| unsafe {
                    idct::<true>(coefficients, offsets, quant, samples, stride)
                },
                // SAFETY: as above.
                h2v1: |row, n, wide| unsafe { h2v1(row, n, wide) },
                // SAFETY: as above.
                h1v2: |near, far, n, bias, between| unsafe { h1v2(near, far, n, bias, between) },
                // SAFETY: as above.
                h2v2: |near, far, n, wide| unsafe { h2v2(near, far, n, wide) },
                // SAFETY: as above.
                ycc_to_rgb: |y, cb, cr, rgb| unsafe { ycc_to_rgb(y, cb, cr, rgb) },
                // SAFETY: as above.
                expand: |masks, dc, values, blocks| unsafe { expand(masks, dc, values, blocks) },
            })
        }

        #[target_feature(enable = $features)]
        fn idct<const ZIGZAG: bool>(
            coefficients: &[i16],
            offsets: &[u32],
            quant: &[u16; 64],
            samples: &mut [u8],
            stride: usize,
        ) {
            assert!(offsets.is_empty() || samples.len() >= 7 * stride + 8 * offsets.len() + 8);
            let quant: [Vector; 8] = std::array::from_fn(|row| {
                let quant = quant[8 * row..8 * row + 8].as_ptr().cast();
                // SAFETY: the slice has the eight values of the row.
                unsafe { load_rows(quant, quant) }
            });
            for (i, blocks) in offsets.chunks(BLOCKS).enumerate() {
                let block = |offset: u32| coefficients[offset as usize..offset as usize + 64].as_ptr();
                // If the number of blocks is odd, the result of the last block is repeated in the
                // padding.
                let (a, b) = (block(blocks[0]), block(blocks[blocks.len() - 1]));
                let mut rows: [Vector; 8] = std::array::from_fn(|row| {
                    // SAFETY: `a` and `b` are 64 coefficients each.
                    unsafe { load_rows(a.add(8 * row), b.add(8 * row)) }
                });
                if ZIGZAG {
                    rows = to_natural_order(&rows);
                }
                for (row, quant) in rows.iter_mut().zip(quant) {
                    *row = mul_i16(*row, quant);
                }
                pass::<11>(&mut rows);
                transpose(&mut rows);
                pass::<18>(&mut rows);
                transpose(&mut rows);
                for row in 0..4 {
                    // SAFETY: the samples of the last row end at `7 * stride + 8 * BLOCKS * (i +
                    // 1)`, which is at most the asserted length, because `BLOCKS` is at most 2.
                    unsafe {
                        let out = samples.as_mut_ptr().add(2 * row * stride + 8 * BLOCKS * i);
                        store_rows(rows[2 * row], rows[2 * row + 1], out, stride);
                    }
                }
            }
        }

        /// Converts 64 coefficients from zigzag to natural order within each 128-bit group. Each
        /// row takes its coefficients from three to five of the vectors.
        #[inline]
        #[target_feature(enable = $features)]
        fn to_natural_order(zigzag: &[Vector; 8]) -> [Vector; 8] {
            use super::rows::row;
            [
                row!(zigzag, 0: 0 1 3),
                row!(zigzag, 1: 0 1 2 3 5),
                row!(zigzag, 2: 0 1 2 3 5),
                row!(zigzag, 3: 1 2 3 5 6),
                row!(zigzag, 4: 1 2 4 5 6),
                row!(zigzag, 5: 2 4 5 6 7),
                row!(zigzag, 6: 2 4 5 6 7),
                row!(zigzag, 7: 4 6 7),
            ]
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn triple(v: Vector) -> Vector {
            add_i16(add_i16(v, v), v)
        }

        #[target_feature(enable = $features)]
        fn h2v1(row: &[u8], n: usize, out: &mut [u8]) {
            for offset in (0..n).step_by(SAMPLES) {
                let center = triple(load_widened(row, offset + 1));
                let even = add_i16(add_i16(center, load_widened(row, offset)), set_i16(1));
                let odd = add_i16(add_i16(center, load_widened(row, offset + 2)), set_i16(2));
                store_pairs(shr_u16::<2>(even), shr_u16::<2>(odd), &mut out[2 * offset..]);
            }
        }

        #[target_feature(enable = $features)]
        fn h1v2(near: &[u8], far: &[u8], n: usize, bias: u8, out: &mut [u8]) {
            for offset in (0..n).step_by(SAMPLES) {
                let sum = add_i16(triple(load_widened(near, offset)), load_widened(far, offset));
                store_low(shr_u16::<2>(add_i16(sum, set_i16(bias.into()))), &mut out[offset..offset + SAMPLES]);
            }
        }

        #[target_feature(enable = $features)]
        fn h2v2(near: &[u8], far: &[u8], n: usize, out: &mut [u8]) {
            for offset in (0..n).step_by(SAMPLES) {
                let sum = |offset| add_i16(triple(load_widened(near, offset)), load_widened(far, offset));
                let center = triple(sum(offset + 1));
                let even = add_i16(add_i16(center, sum(offset)), set_i16(8));
                let odd = add_i16(add_i16(center, sum(offset + 2)), set_i16(7));
                store_pairs(shr_u16::<4>(even), shr_u16::<4>(odd), &mut out[2 * offset..]);
            }
        }

        #[target_feature(enable = $features)]
        fn ycc_to_rgb(y: &[u8], cb: &[u8], cr: &[u8], rgb: &mut [u8]) {
            const PIXELS: usize = 2 * SAMPLES;
            let bytes = rgb.len();
            let mut last = [0; 3 * PIXELS];
            for offset in (0..bytes / 3).step_by(PIXELS) {
                prefetch(rgb, 3 * offset);
                let pixels = convert(y, cb, cr, offset);
                let is_full = bytes - 3 * offset >= 3 * PIXELS;
                interleave(pixels, if is_full { &mut rgb[3 * offset..] } else { &mut last });
                if !is_full {
                    rgb[3 * offset..].copy_from_slice(&last[..bytes - 3 * offset]);
                }
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn convert(y: &[u8], cb: &[u8], cr: &[u8], offset: usize) -> [Bytes; 3] {
            let half = |offset: usize| {
                let center = set_i16(128);
                let y = load_widened(y, offset);
                let cb = sub_i16(load_widened(cb, offset), center);
                let cr = sub_i16(load_widened(cr, offset), center);
                // The integer parts of the factors are applied separately, so that 16 bits suffice
                // for the fractional parts: 1.402 = 1 + 0.402, 1.772 = 2 - 0.228, 0.71414 = 1 -
                // 0.28586.
                let ones = set_i16(1);
                let scaled_fraction = |v, factor| shr_i16::<1>(add_i16(mul_high_twice(v, factor), ones));
                let red = add_i16(scaled_fraction(cr, 26345), cr);
                let blue = add_i16(scaled_fraction(cb, -14942), add_i16(cb, cb));
                let both = pairs(cb, cr);
                let sum = |half| shr_i32::<16>(add_i32(dot(both, half, -22554, 18734), set_i32(32768)));
                let green = sub_i16(narrow(sum(0), sum(1)), cr);
                [add_i16(y, red), add_i16(y, green), add_i16(y, blue)]
            };
            let (first, second) = (half(offset), half(offset + SAMPLES));
            std::array::from_fn(|i| pack(first[i], second[i]))
        }
    };
}
pub(super) use {row, rows};
