//! AVX2 code, for two blocks, or 16 to 32 samples, at a time.
//!
//! **Invariants**
//! - Functions marked `target_feature` run only through [`kernels`], which checks the CPU for AVX2.
//! - Every pointer comes from a slice whose length was asserted, in the same function, to cover all
//!   vectors read or written.

use std::arch::x86_64::*;
use std::arch::x86_64::{
    __m256i as Vector, _mm256_add_epi16 as add_epi16, _mm256_add_epi32 as add_epi32, _mm256_madd_epi16 as madd_epi16,
    _mm256_packs_epi32 as packs_epi32, _mm256_set1_epi32 as set1_epi32, _mm256_setzero_si256 as setzero,
    _mm256_srai_epi32 as srai_epi32, _mm256_sub_epi16 as sub_epi16, _mm256_sub_epi32 as sub_epi32,
    _mm256_unpackhi_epi16 as unpackhi_epi16, _mm256_unpackhi_epi32 as unpackhi_epi32,
    _mm256_unpackhi_epi64 as unpackhi_epi64, _mm256_unpacklo_epi16 as unpacklo_epi16,
    _mm256_unpacklo_epi32 as unpacklo_epi32, _mm256_unpacklo_epi64 as unpacklo_epi64,
};

use super::functions::Kernels;
use super::idct::pair;
use crate::decode::jpeg::header::NATURAL;

/// Type of a shift's constant in the instructions.
type Shift = i32;

/// The functions of this file, if this CPU can run them.
pub(super) fn kernels() -> Option<Kernels> {
    is_x86_feature_detected!("avx2").then_some(Kernels {
        // SAFETY: the CPU has AVX2, see the invariants.
        idct: |coefficients, offsets, quant, samples, stride| unsafe {
            idct::<false>(coefficients, offsets, quant, samples, stride)
        },
        // SAFETY: as above.
        idct_of_lanes: |coefficients, offsets, quant, samples, stride| unsafe {
            idct::<true>(coefficients, offsets, quant, samples, stride)
        },
        // SAFETY: as above.
        h2v1: |row, n, wide| unsafe { h2v1(row, n, wide) },
        // SAFETY: as above.
        h1v2: |near, far, n, bias, between| unsafe { h1v2(near, far, n, bias, between) },
        // SAFETY: as above.
        h2v2: |near, far, n, wide| unsafe { h2v2(near, far, n, wide) },
        // SAFETY: as above.
        ycc: |y, cb, cr, rgb| unsafe { ycc(y, cb, cr, rgb) },
    })
}

#[target_feature(enable = "avx2")]
fn idct<const ZIGZAG: bool>(
    coefficients: &[i16],
    offsets: &[u32],
    quant: &[u16; 64],
    samples: &mut [u8],
    stride: usize,
) {
    assert!(offsets.is_empty() || samples.len() >= 7 * stride + 8 * offsets.len() + 8);
    let quant: [__m256i; 8] = std::array::from_fn(|row| {
        // SAFETY: the slice has the eight values of the row.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(quant[8 * row..8 * row + 8].as_ptr().cast()) })
    });
    for (i, pair) in offsets.chunks(2).enumerate() {
        let block = |at: u32| coefficients[at as usize..at as usize + 64].as_ptr();
        // The last of an odd number of blocks is transformed twice. The second result is padding.
        let (a, b) = (block(pair[0]), block(pair[pair.len() - 1]));
        let mut rows: [__m256i; 8] = std::array::from_fn(|row| {
            // SAFETY: `a` and `b` are 64 coefficients each.
            unsafe { _mm256_loadu2_m128i(b.add(8 * row).cast(), a.add(8 * row).cast()) }
        });
        if ZIGZAG {
            rows = natural(&rows);
        }
        for (row, quant) in rows.iter_mut().zip(quant) {
            *row = _mm256_mullo_epi16(*row, quant);
        }
        pass::<11>(&mut rows);
        transpose(&mut rows);
        pass::<18>(&mut rows);
        transpose(&mut rows);
        for row in 0..4 {
            let two = _mm256_xor_si256(_mm256_packs_epi16(rows[2 * row], rows[2 * row + 1]), _mm256_set1_epi8(-128));
            let two = _mm256_permute4x64_epi64::<0b11_01_10_00>(two);
            // SAFETY: 16 samples of the last row end at `7 * stride + 16 * i + 16`, which is at
            // most the asserted length.
            unsafe {
                let to = samples.as_mut_ptr().add(2 * row * stride + 16 * i);
                _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(two));
                _mm_storeu_si128(to.add(stride).cast(), _mm256_extracti128_si256::<1>(two));
            }
        }
    }
}

/// For each row in natural order and each eight coefficients in zigzag order, the shuffle that
/// moves them to their places, twice sixteen bytes.
const SORT: [[[i8; 32]; 8]; 8] = {
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

/// Converts 64 coefficients in zigzag order to eight rows in natural order, in each 128-bit half. A
/// row needs three to five of the vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn natural(zigzag: &[__m256i; 8]) -> [__m256i; 8] {
    macro_rules! row {
        ($row:literal: $first:literal $($from:literal)*) => {{
            let taken = |from: usize| {
                // SAFETY: the array has 32 bytes.
                let places = unsafe { _mm256_loadu_si256(SORT[$row][from].as_ptr().cast()) };
                _mm256_shuffle_epi8(zigzag[from], places)
            };
            let row = taken($first);
            $(let row = _mm256_or_si256(row, taken($from));)*
            row
        }};
    }
    [
        row!(0: 0 1 3),
        row!(1: 0 1 2 3 5),
        row!(2: 0 1 2 3 5),
        row!(3: 1 2 3 5 6),
        row!(4: 1 2 4 5 6),
        row!(5: 2 4 5 6 7),
        row!(6: 2 4 5 6 7),
        row!(7: 4 6 7),
    ]
}

super::idct::idct!("avx2");

/// Loads sixteen samples from `at` on as 16-bit numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn wide(row: &[u8], at: usize) -> __m256i {
    // SAFETY: the slice is 16 bytes long.
    _mm256_cvtepu8_epi16(unsafe { _mm_loadu_si128(row[at..at + 16].as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
fn triple(v: __m256i) -> __m256i {
    _mm256_add_epi16(_mm256_add_epi16(v, v), v)
}

/// Stores `even` and `odd` samples, which fit into 8 bits, alternately.
#[inline]
#[target_feature(enable = "avx2")]
fn store_pairs(even: __m256i, odd: __m256i, to: &mut [u8]) {
    let to = to[..32].as_mut_ptr();
    // SAFETY: the slice is 32 bytes long.
    unsafe { _mm256_storeu_si256(to.cast(), _mm256_or_si256(even, _mm256_slli_epi16::<8>(odd))) };
}

#[target_feature(enable = "avx2")]
fn h2v1(row: &[u8], n: usize, out: &mut [u8]) {
    for at in (0..n).step_by(16) {
        let own = triple(wide(row, at + 1));
        let even = _mm256_add_epi16(_mm256_add_epi16(own, wide(row, at)), _mm256_set1_epi16(1));
        let odd = _mm256_add_epi16(_mm256_add_epi16(own, wide(row, at + 2)), _mm256_set1_epi16(2));
        store_pairs(_mm256_srli_epi16::<2>(even), _mm256_srli_epi16::<2>(odd), &mut out[2 * at..]);
    }
}

#[target_feature(enable = "avx2")]
fn h1v2(near: &[u8], far: &[u8], n: usize, bias: u8, out: &mut [u8]) {
    for at in (0..n).step_by(16) {
        let sum = _mm256_add_epi16(triple(wide(near, at)), wide(far, at));
        let scaled = _mm256_srli_epi16::<2>(_mm256_add_epi16(sum, _mm256_set1_epi16(bias.into())));
        let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(scaled, scaled));
        let to = out[at..at + 16].as_mut_ptr();
        // SAFETY: the slice is 16 bytes long.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed)) };
    }
}

#[target_feature(enable = "avx2")]
fn h2v2(near: &[u8], far: &[u8], n: usize, out: &mut [u8]) {
    for at in (0..n).step_by(16) {
        let sum = |at| _mm256_add_epi16(triple(wide(near, at)), wide(far, at));
        let own = triple(sum(at + 1));
        let even = _mm256_add_epi16(_mm256_add_epi16(own, sum(at)), _mm256_set1_epi16(8));
        let odd = _mm256_add_epi16(_mm256_add_epi16(own, sum(at + 2)), _mm256_set1_epi16(7));
        store_pairs(_mm256_srli_epi16::<4>(even), _mm256_srli_epi16::<4>(odd), &mut out[2 * at..]);
    }
}

/// Distance ahead of the written bytes, in bytes, at which pixels are prefetched into the cache.
/// The pictures of a group exceed the L2 cache together, and are written a few rows at a time.
const AHEAD: usize = 2048;

#[target_feature(enable = "avx2")]
fn ycc(y: &[u8], cb: &[u8], cr: &[u8], rgb: &mut [u8]) {
    let bytes = rgb.len();
    let mut last = [0; 96];
    for at in (0..bytes / 3).step_by(32) {
        for line in [0, 64] {
            let ahead = rgb.as_ptr().wrapping_add(3 * at + AHEAD + line);
            _mm_prefetch::<_MM_HINT_ET0>(ahead.cast());
        }
        let pixels = convert(y, cb, cr, at);
        let full = bytes - 3 * at >= 96;
        interleave(pixels, if full { &mut rgb[3 * at..] } else { &mut last });
        if !full {
            rgb[3 * at..].copy_from_slice(&last[..bytes - 3 * at]);
        }
    }
}

/// Computes red, green and blue of 32 pixels.
#[inline]
#[target_feature(enable = "avx2")]
fn convert(y: &[u8], cb: &[u8], cr: &[u8], at: usize) -> [__m256i; 3] {
    let half = |at: usize| {
        let centre = _mm256_set1_epi16(128);
        let (y, cb, cr) = (wide(y, at), _mm256_sub_epi16(wide(cb, at), centre), _mm256_sub_epi16(wide(cr, at), centre));
        // The whole parts of the factors are added separately, so that 16 bits suffice for the
        // rest: 1.402 = 1 + 0.402, 1.772 = 2 - 0.228, 0.71414 = 1 - 0.28586.
        let one = _mm256_set1_epi16(1);
        let scaled = |v, factor| {
            let high = _mm256_mulhi_epi16(_mm256_add_epi16(v, v), _mm256_set1_epi16(factor));
            _mm256_srai_epi16::<1>(_mm256_add_epi16(high, one))
        };
        let red = _mm256_add_epi16(scaled(cr, 26345), cr);
        let blue = _mm256_add_epi16(scaled(cb, -14942), _mm256_add_epi16(cb, cb));
        let dot = |v| {
            let sum = _mm256_madd_epi16(v, _mm256_set1_epi32(pair(-22554, 18734)));
            _mm256_srai_epi32::<16>(_mm256_add_epi32(sum, _mm256_set1_epi32(32768)))
        };
        let green = _mm256_packs_epi32(dot(_mm256_unpacklo_epi16(cb, cr)), dot(_mm256_unpackhi_epi16(cb, cr)));
        let green = _mm256_sub_epi16(green, cr);
        [_mm256_add_epi16(y, red), _mm256_add_epi16(y, green), _mm256_add_epi16(y, blue)]
    };
    let (first, second) = (half(at), half(at + 16));
    std::array::from_fn(|i| _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(first[i], second[i])))
}

/// For each channel, the index of the pixel at each byte. 16 pixels form three blocks of 16 bytes,
/// and in exactly one of them a given byte belongs to the channel.
const SPREAD: [[i8; 16]; 3] = {
    let mut spread = [[0; 16]; 3];
    let mut byte = 0;
    while byte < 48 {
        spread[byte % 3][byte % 16] = (byte / 3) as i8;
        byte += 1;
    }
    spread
};

/// For each block of 16 bytes and each channel, all ones at the channel's bytes.
const CHOOSE: [[[i8; 16]; 3]; 3] = {
    let mut choose = [[[0; 16]; 3]; 3];
    let mut byte = 0;
    while byte < 48 {
        choose[byte / 16][byte % 3][byte % 16] = -1;
        byte += 1;
    }
    choose
};

/// Interleaves and writes 32 pixels, 96 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn interleave(channels: [__m256i; 3], to: &mut [u8]) {
    // SAFETY: the array has sixteen bytes.
    let twice = |bytes: &[i8; 16]| _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) });
    let spread: [__m256i; 3] = std::array::from_fn(|i| _mm256_shuffle_epi8(channels[i], twice(&SPREAD[i])));
    let blocks: [__m256i; 3] = std::array::from_fn(|block| {
        let rg = _mm256_blendv_epi8(spread[0], spread[1], twice(&CHOOSE[block][1]));
        _mm256_blendv_epi8(rg, spread[2], twice(&CHOOSE[block][2]))
    });
    let to = to[..96].as_mut_ptr();
    // SAFETY: the slice is 96 bytes long.
    unsafe {
        _mm256_storeu_si256(to.cast(), _mm256_permute2x128_si256::<0x20>(blocks[0], blocks[1]));
        _mm256_storeu_si256(to.add(32).cast(), _mm256_permute2x128_si256::<0x30>(blocks[2], blocks[0]));
        _mm256_storeu_si256(to.add(64).cast(), _mm256_permute2x128_si256::<0x31>(blocks[1], blocks[2]));
    }
}
