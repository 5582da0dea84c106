//! AVX2 code that processes two blocks, or 16 to 32 samples, at a time.
//!
//! **Invariants**
//! - Functions marked `target_feature` are called only through `kernels`, which checks that the CPU
//!   supports AVX2.
//! - Every pointer comes from a slice. The function that creates the pointer, or its caller,
//!   asserts that the slice covers all vectors that are read or written.

use std::arch::x86_64::*;
use std::arch::x86_64::{
    __m256i as Vector, __m256i as Bytes, _mm256_add_epi16 as add_i16, _mm256_add_epi32 as add_i32,
    _mm256_madd_epi16 as madd_i16, _mm256_mullo_epi16 as mul_i16, _mm256_or_si256 as or, _mm256_packs_epi32 as narrow,
    _mm256_set1_epi16 as set_i16, _mm256_set1_epi32 as set_i32, _mm256_setzero_si256 as zero,
    _mm256_srai_epi16 as shr_i16, _mm256_srai_epi32 as shr_i32, _mm256_srli_epi16 as shr_u16,
    _mm256_sub_epi16 as sub_i16, _mm256_sub_epi32 as sub_i32, _mm256_unpackhi_epi16 as zip_high_i16,
    _mm256_unpackhi_epi32 as zip_high_i32, _mm256_unpackhi_epi64 as zip_high_i64, _mm256_unpacklo_epi16 as zip_low_i16,
    _mm256_unpacklo_epi32 as zip_low_i32, _mm256_unpacklo_epi64 as zip_low_i64,
};

use super::functions::{EXPAND_PADDING, Kernels, value_bytes};
use super::rows::NATURAL_SHUFFLES;
use super::scalar::expand_block;

type Shift = i32;
const BLOCKS: usize = 2;
const SAMPLES: usize = 16;

super::idct::pairs!("avx2");
super::idct::transform!("avx2");
super::rows::rows!("avx2", is_x86_feature_detected!("avx2"));

/// Loads eight coefficients from `a` into the lower half, and eight from `b` into the upper half.
///
/// # Safety
/// Eight coefficients must be readable at `a` and at `b`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_rows(a: *const i16, b: *const i16) -> Vector {
    // SAFETY: guaranteed by the caller.
    unsafe { _mm256_loadu2_m128i(b.cast(), a.cast()) }
}

/// Stores two rows of samples, `stride` apart, for both blocks.
///
/// # Safety
/// 16 samples must be writable at `out`, and 16 at `out + stride`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_rows(upper: Vector, lower: Vector, out: *mut u8, stride: usize) {
    let two = _mm256_xor_si256(_mm256_packs_epi16(upper, lower), _mm256_set1_epi8(-128));
    let two = _mm256_permute4x64_epi64::<0b11_01_10_00>(two);
    // SAFETY: guaranteed by the caller.
    unsafe {
        _mm_storeu_si128(out.cast(), _mm256_castsi256_si128(two));
        _mm_storeu_si128(out.add(stride).cast(), _mm256_extracti128_si256::<1>(two));
    }
}

/// Rearranges the bytes within each half: byte `i` of the result is the byte at index `indices[i]`,
/// or 0 if that index is negative.
#[inline]
#[target_feature(enable = "avx2")]
fn shuffle(v: Vector, indices: &[i8; 32]) -> Vector {
    // SAFETY: the array has 32 bytes.
    _mm256_shuffle_epi8(v, unsafe { _mm256_loadu_si256(indices.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_widened(row: &[u8], offset: usize) -> Vector {
    // SAFETY: the slice is 16 bytes long.
    _mm256_cvtepu8_epi16(unsafe { _mm_loadu_si128(row[offset..offset + 16].as_ptr().cast()) })
}

/// Stores the samples of `even` and `odd` alternately. Each sample must fit in 8 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn store_pairs(even: Vector, odd: Vector, out: &mut [u8]) {
    let out = out[..32].as_mut_ptr();
    // SAFETY: the slice is 32 bytes long.
    unsafe { _mm256_storeu_si256(out.cast(), _mm256_or_si256(even, _mm256_slli_epi16::<8>(odd))) };
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_low(samples: Vector, out: &mut [u8]) {
    let out = out[..16].as_mut_ptr();
    // SAFETY: the slice is 16 bytes long.
    unsafe { _mm_storeu_si128(out.cast(), _mm256_castsi256_si128(pack(samples, samples))) };
}

/// Clamps the elements of `first` and `second` to 0 to 255, and packs them into one vector.
#[inline]
#[target_feature(enable = "avx2")]
fn pack(first: Vector, second: Vector) -> Bytes {
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(first, second))
}

/// Returns the upper 16 bits of `2 * v * factor`.
#[inline]
#[target_feature(enable = "avx2")]
fn mul_high_twice(v: Vector, factor: i16) -> Vector {
    _mm256_mulhi_epi16(add_i16(v, v), set_i16(factor))
}

/// How many bytes ahead to prefetch. Prefetching helps because the images of a group exceed the L2
/// cache in total, and because a few rows of each image are written at a time.
const PREFETCH_DISTANCE: usize = 2048;

#[inline]
#[target_feature(enable = "avx2")]
fn prefetch(rgb: &[u8], offset: usize) {
    for line in [0, 64] {
        let ahead = rgb.as_ptr().wrapping_add(offset + PREFETCH_DISTANCE + line);
        _mm_prefetch::<_MM_HINT_ET0>(ahead.cast());
    }
}

/// For each channel and each byte position in a block, the index of the pixel. 16 pixels form three
/// 16-byte blocks. In exactly one of the blocks, a given byte position belongs to a given channel.
const SPREAD_SHUFFLES: [[i8; 16]; 3] = {
    let mut spread = [[0; 16]; 3];
    let mut byte = 0;
    while byte < 48 {
        spread[byte % 3][byte % 16] = (byte / 3) as i8;
        byte += 1;
    }
    spread
};

/// For each 16-byte block and each channel, a mask that selects the channel's bytes.
const CHANNEL_MASKS: [[[i8; 16]; 3]; 3] = {
    let mut choose = [[[0; 16]; 3]; 3];
    let mut byte = 0;
    while byte < 48 {
        choose[byte / 16][byte % 3][byte % 16] = -1;
        byte += 1;
    }
    choose
};

#[inline]
#[target_feature(enable = "avx2")]
fn interleave(channels: [Bytes; 3], out: &mut [u8]) {
    // SAFETY: the array has sixteen bytes.
    let broadcast = |bytes: &[i8; 16]| _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) });
    let spread: [Vector; 3] = std::array::from_fn(|i| _mm256_shuffle_epi8(channels[i], broadcast(&SPREAD_SHUFFLES[i])));
    let blocks: [Vector; 3] = std::array::from_fn(|block| {
        let rg = _mm256_blendv_epi8(spread[0], spread[1], broadcast(&CHANNEL_MASKS[block][1]));
        _mm256_blendv_epi8(rg, spread[2], broadcast(&CHANNEL_MASKS[block][2]))
    });
    let out = out[..96].as_mut_ptr();
    // SAFETY: the slice is 96 bytes long.
    unsafe {
        _mm256_storeu_si256(out.cast(), _mm256_permute2x128_si256::<0x20>(blocks[0], blocks[1]));
        _mm256_storeu_si256(out.add(32).cast(), _mm256_permute2x128_si256::<0x30>(blocks[2], blocks[0]));
        _mm256_storeu_si256(out.add(64).cast(), _mm256_permute2x128_si256::<0x31>(blocks[1], blocks[2]));
    }
}

/// For each byte of a mask, the shuffle that moves consecutive bytes to the positions of its bits,
/// followed by the number of bits.
const EXPAND_SHUFFLES: [[i8; 16]; 256] = {
    let mut expand = [[-1; 16]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut count) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                expand[byte][bit] = count;
                count += 1;
            }
            bit += 1;
        }
        expand[byte][8] = count;
        byte += 1;
    }
    expand
};

#[target_feature(enable = "avx2")]
fn expand(masks: &[u64], dc: &[i16], mut values: &[u8], blocks: &mut [i16]) {
    for ((&mask, &dc), block) in masks.iter().zip(dc).zip(blocks.as_chunks_mut::<64>().0) {
        if mask & 1 == 0 {
            let source = &values[..EXPAND_PADDING];
            let mut next = 0;
            for (byte, group) in mask.to_le_bytes().into_iter().zip(block.as_chunks_mut::<8>().0) {
                let shuffle = &EXPAND_SHUFFLES[usize::from(byte)];
                let from = source[next..next + 8].as_ptr();
                // SAFETY: the slice has eight bytes, the shuffle 16 and the output eight numbers.
                unsafe {
                    let bytes =
                        _mm_shuffle_epi8(_mm_loadl_epi64(from.cast()), _mm_loadu_si128(shuffle.as_ptr().cast()));
                    _mm_storeu_si128(group.as_mut_ptr().cast(), _mm_cvtepi8_epi16(bytes));
                }
                next += shuffle[8] as usize;
            }
        } else {
            expand_block(mask, values, block);
        }
        block[0] = dc;
        values = &values[value_bytes(mask)..];
    }
}
