//! AVX-512 code that transforms four blocks at a time, or expands one block. The other functions
//! come from the AVX2 code, because memory or shuffles limit most of them.
//!
//! **Invariants**
//! - Functions marked `target_feature` are called only through [`kernels`], which checks that the
//!   CPU supports AVX-512 F and BW, and VBMI2 and POPCNT for `expand`.
//! - Every pointer comes from a slice. The function that creates the pointer asserts that the slice
//!   covers all vectors that are read or written.

use std::arch::x86_64::*;
use std::arch::x86_64::{
    __m512i as Vector, _mm512_add_epi16 as add_i16, _mm512_add_epi32 as add_i32, _mm512_madd_epi16 as madd_i16,
    _mm512_packs_epi32 as narrow, _mm512_set1_epi32 as set_i32, _mm512_setzero_si512 as zero,
    _mm512_srai_epi32 as shr_i32, _mm512_sub_epi16 as sub_i16, _mm512_sub_epi32 as sub_i32,
    _mm512_unpackhi_epi16 as zip_high_i16, _mm512_unpackhi_epi32 as zip_high_i32,
    _mm512_unpackhi_epi64 as zip_high_i64, _mm512_unpacklo_epi16 as zip_low_i16, _mm512_unpacklo_epi32 as zip_low_i32,
    _mm512_unpacklo_epi64 as zip_low_i64,
};

use super::avx2;
use super::functions::{EXPAND_PADDING, Kernels, value_bytes};
use super::scalar::expand_block;
use crate::header::NATURAL;

type Shift = u32;

pub(super) fn kernels() -> Option<Kernels> {
    let is_supported = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    let expands = is_x86_feature_detected!("avx512vbmi2") && is_x86_feature_detected!("popcnt");
    avx2::kernels().filter(|_| is_supported).map(|kernels| Kernels {
        // SAFETY: the CPU has AVX-512 (see the invariants).
        idct_zigzag: |coefficients, offsets, quant, samples, stride| unsafe {
            idct(coefficients, offsets, quant, samples, stride)
        },
        expand: if expands {
            // SAFETY: `expands` has checked the CPU.
            |masks, dc, values, blocks| unsafe { expand(masks, dc, values, blocks) }
        } else {
            kernels.expand
        },
        ..kernels
    })
}

const ZIGZAG: [u16; 64] = {
    let mut zigzag = [0; 64];
    let mut i = 0;
    while i < 64 {
        zigzag[NATURAL[i] as usize] = i as u16;
        i += 1;
    }
    zigzag
};

#[target_feature(enable = "avx512f,avx512bw")]
fn idct(coefficients: &[i16], offsets: &[u32], quant: &[u16; 64], samples: &mut [u8], stride: usize) {
    assert!(offsets.is_empty() || samples.len() >= 7 * stride + 8 * offsets.len() + 24);
    // SAFETY: both halves are inside the array of 64 numbers.
    let halves = |table: &[u16; 64]| unsafe {
        [_mm512_loadu_si512(table.as_ptr().cast()), _mm512_loadu_si512(table[32..].as_ptr().cast())]
    };
    let (quant, order) = (halves(quant), halves(&ZIGZAG));
    for (i, four) in offsets.chunks(4).enumerate() {
        // If fewer than four blocks remain, the results of the last block are repeated in the
        // padding.
        let mut natural = [[_mm512_setzero_si512(); 4]; 2];
        for block in 0..4 {
            let offset = four[block.min(four.len() - 1)] as usize;
            let block_at = coefficients[offset..offset + 64].as_ptr();
            // SAFETY: the slice has 64 coefficients.
            let (low, high) =
                unsafe { (_mm512_loadu_si512(block_at.cast()), _mm512_loadu_si512(block_at.add(32).cast())) };
            for half in 0..2 {
                let values = _mm512_permutex2var_epi16(low, order[half], high);
                natural[half][block] = _mm512_mullo_epi16(values, quant[half]);
            }
        }
        // Regroup the rows: each vector then contains one row of all four blocks.
        let mut rows = [_mm512_setzero_si512(); 8];
        for (half, [a, b, c, d]) in natural.into_iter().enumerate() {
            let (ab, cd) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
            let (ab_high, cd_high) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
            rows[4 * half] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
            rows[4 * half + 1] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
            rows[4 * half + 2] = _mm512_shuffle_i32x4::<0x88>(ab_high, cd_high);
            rows[4 * half + 3] = _mm512_shuffle_i32x4::<0xdd>(ab_high, cd_high);
        }
        pass::<11>(&mut rows);
        transpose(&mut rows);
        pass::<18>(&mut rows);
        transpose(&mut rows);
        for row in 0..4 {
            let two = _mm512_xor_si512(_mm512_packs_epi16(rows[2 * row], rows[2 * row + 1]), _mm512_set1_epi8(-128));
            let two = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), two);
            // SAFETY: 32 samples of the last row end at `7 * stride + 32 * i + 32`, which is at
            // most the asserted length.
            unsafe {
                let out = samples.as_mut_ptr().add(2 * row * stride + 32 * i);
                _mm256_storeu_si256(out.cast(), _mm512_castsi512_si256(two));
                _mm256_storeu_si256(out.add(stride).cast(), _mm512_extracti64x4_epi64::<1>(two));
            }
        }
    }
}

super::idct::pairs!("avx512f,avx512bw");
super::idct::transform!("avx512f,avx512bw");

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn expand(masks: &[u64], dc: &[i16], mut values: &[u8], blocks: &mut [i16]) {
    for ((&mask, &dc), block) in masks.iter().zip(dc).zip(blocks.as_chunks_mut::<64>().0) {
        if mask & 1 == 0 {
            let read = values[..EXPAND_PADDING].as_ptr();
            // SAFETY: the slice has 64 bytes, and the block 64 coefficients.
            unsafe {
                let bytes = _mm512_maskz_expand_epi8(mask, _mm512_loadu_si512(read.cast()));
                let low = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(bytes));
                let high = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64::<1>(bytes));
                _mm512_storeu_si512(block.as_mut_ptr().cast(), low);
                _mm512_storeu_si512(block[32..].as_mut_ptr().cast(), high);
            }
        } else {
            expand_block(mask, values, block);
        }
        block[0] = dc;
        values = &values[value_bytes(mask)..];
    }
}
