//! Plain Rust kernels. The vector kernels must produce the same results.
//!
//! The transform is libjpeg's accurate integer transform (Loeffler, Ligtenberg and Moschytz,
//! "Practical fast 1-D DCT algorithms with 11 multiplications", 1989; 13-bit constants). The
//! integer widths are the same as in libjpeg-turbo's SIMD code: products with the quantization
//! table and sums of two inputs wrap at 16 bits, and the results between the passes saturate at 16
//! bits.

use super::functions::{Kernels, value_bytes};
use crate::header::NATURAL;

pub(super) const KERNELS: Kernels =
    Kernels { idct: idct::<false>, idct_zigzag: idct::<true>, h2v1, h1v2, h2v2, ycc_to_rgb, expand };

/// Returns the samples of one block, row by row.
pub fn inverse_transform(block: &[i16; 64], quant: &[u16; 64]) -> [u8; 64] {
    let mut samples = [0; 64];
    idct::<false>(block, &[0], quant, &mut samples, 8);
    samples
}

fn idct<const ZIGZAG: bool>(
    coefficients: &[i16],
    offsets: &[u32],
    quant: &[u16; 64],
    samples: &mut [u8],
    stride: usize,
) {
    for (i, &offset) in offsets.iter().enumerate() {
        let block = &coefficients[offset as usize..offset as usize + 64];
        let mut values = [0i16; 64];
        for (k, &c) in block.iter().enumerate() {
            let natural = if ZIGZAG { NATURAL[k].into() } else { k };
            values[natural] = c.wrapping_mul(quant[natural] as i16);
        }
        for column in 0..8 {
            let out = pass::<11>(std::array::from_fn(|row| values[8 * row + column]));
            (0..8).for_each(|row| values[8 * row + column] = out[row]);
        }
        for (row, values) in values.chunks_exact(8).enumerate() {
            let out = pass::<18>(values.try_into().expect("a chunk has eight values"));
            let offset = row * stride + 8 * i;
            for (sample, value) in samples[offset..offset + 8].iter_mut().zip(out) {
                *sample = (value.clamp(-128, 127) + 128) as u8;
            }
        }
    }
}

/// Transforms one row or column. The results are shifted right by `SHIFT` bits.
fn pass<const SHIFT: u32>(x: [i16; 8]) -> [i16; 8] {
    const F_0_298: i32 = 2446;
    const F_0_390: i32 = 3196;
    const F_0_541: i32 = 4433;
    const F_0_765: i32 = 6270;
    const F_0_899: i32 = 7373;
    const F_1_175: i32 = 9633;
    const F_1_501: i32 = 12299;
    const F_1_847: i32 = 15137;
    const F_1_961: i32 = 16069;
    const F_2_053: i32 = 16819;
    const F_2_562: i32 = 20995;
    const F_3_072: i32 = 25172;
    let [x0, x1, x2, x3, x4, x5, x6, x7] = x.map(i32::from);
    let narrow = |sum: i32| i32::from(sum as i16);

    let even2 = x2 * F_0_541 + x6 * (F_0_541 - F_1_847);
    let even3 = x2 * (F_0_541 + F_0_765) + x6 * F_0_541;
    let (even0, even1) = (narrow(x0 + x4) << 13, narrow(x0 - x4) << 13);
    let even = [even0 + even3, even1 + even2, even1 - even2, even0 - even3];

    let (z3, z4) = (narrow(x7 + x3), narrow(x5 + x1));
    let z5 = [z3 * (F_1_175 - F_1_961) + z4 * F_1_175, z3 * F_1_175 + z4 * (F_1_175 - F_0_390)];
    let odd = [
        x7 * -F_0_899 + x1 * (F_1_501 - F_0_899) + z5[1],
        x5 * -F_2_562 + x3 * (F_3_072 - F_2_562) + z5[0],
        x5 * (F_2_053 - F_2_562) + x3 * -F_2_562 + z5[1],
        x7 * (F_0_298 - F_0_899) + x1 * -F_0_899 + z5[0],
    ];
    let scale = |sum: i32| (sum.wrapping_add(1 << (SHIFT - 1)) >> SHIFT).clamp(-32768, 32767) as i16;
    std::array::from_fn(|i| {
        if i < 4 { scale(even[i].wrapping_add(odd[i])) } else { scale(even[7 - i].wrapping_sub(odd[7 - i])) }
    })
}

fn h2v1(row: &[u8], n: usize, wide: &mut [u8]) {
    for (pair, near) in wide[..2 * n].chunks_exact_mut(2).zip(row[..n + 2].windows(3)) {
        let [left, center, right] = [near[0], near[1], near[2]].map(u16::from);
        pair[0] = ((3 * center + left + 1) >> 2) as u8;
        pair[1] = ((3 * center + right + 2) >> 2) as u8;
    }
}

fn h1v2(near: &[u8], far: &[u8], n: usize, bias: u8, between: &mut [u8]) {
    for ((sample, &near), &far) in between[..n].iter_mut().zip(near).zip(far) {
        *sample = ((3 * u16::from(near) + u16::from(far) + u16::from(bias)) >> 2) as u8;
    }
}

fn h2v2(near: &[u8], far: &[u8], n: usize, wide: &mut [u8]) {
    for ((pair, near), far) in wide[..2 * n].chunks_exact_mut(2).zip(near[..n + 2].windows(3)).zip(far.windows(3)) {
        let [left, center, right] = std::array::from_fn(|i| 3 * u16::from(near[i]) + u16::from(far[i]));
        pair[0] = ((3 * center + left + 8) >> 4) as u8;
        pair[1] = ((3 * center + right + 7) >> 4) as u8;
    }
}

fn ycc_to_rgb(y: &[u8], cb: &[u8], cr: &[u8], rgb: &mut [u8]) {
    // Factors of JFIF 1.02, multiplied by 2^16.
    for (((pixel, &y), &cb), &cr) in rgb.chunks_exact_mut(3).zip(y).zip(cb).zip(cr) {
        let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
        pixel[0] = (y + ((91881 * cr + 32768) >> 16)).clamp(0, 255) as u8;
        pixel[1] = (y + ((-22554 * cb - 46802 * cr + 32768) >> 16)).clamp(0, 255) as u8;
        pixel[2] = (y + ((116130 * cb + 32768) >> 16)).clamp(0, 255) as u8;
    }
}

pub(super) fn expand(masks: &[u64], dc: &[i16], mut values: &[u8], blocks: &mut [i16]) {
    for ((&mask, &dc), block) in masks.iter().zip(dc).zip(blocks.as_chunks_mut::<64>().0) {
        expand_block(mask, values, block);
        block[0] = dc;
        values = &values[value_bytes(mask)..];
    }
}

pub(super) fn expand_block(mask: u64, values: &[u8], block: &mut [i16; 64]) {
    *block = [0; 64];
    let (mut rest, is_wide) = (mask & !1, mask & 1 != 0);
    let (lower, upper) = values.split_at(rest.count_ones() as usize);
    for (i, &low) in lower.iter().enumerate() {
        let value = if is_wide { i16::from_le_bytes([low, upper[i]]) } else { i16::from(low as i8) };
        block[rest.trailing_zeros() as usize] = value;
        rest &= rest - 1;
    }
}
