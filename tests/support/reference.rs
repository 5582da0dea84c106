//! Reference implementation of the pixel conversion, for the host and device tests. It runs on the
//! host, pixel by pixel, and performs the operations in the order of `convert.cu`.

#![allow(dead_code)] // not every test uses all of it

use half::{bf16, f16};
use warpfeed::decode::Rect;
use warpfeed::{Dtype, Layout, Normalize};

/// The operations on one sample. Mirrors the record that the library passes to the device
/// (`src/batch/records/sample.rs`).
#[derive(Debug, Clone, Default)]
pub(crate) struct Ops {
    /// The rectangle to erase, and the value of each channel in it.
    pub(crate) erase: Option<(Rect, [f32; 3])>,
    /// Index of the sample to blend with this one, and the weight of this sample.
    pub(crate) mix: Option<(usize, f32)>,
    /// Index of the sample to paste from, and the rectangle that shows its pixels. Ignored if `mix`
    /// is set.
    pub(crate) cut: Option<(usize, Rect)>,
}

fn inside(rect: Rect, x: usize, y: usize) -> bool {
    let is_between =
        |position: usize, start: u32, len: u32| (start as usize..(start + len) as usize).contains(&position);
    is_between(x, rect.x, rect.width) && is_between(y, rect.y, rect.height)
}

/// Converts `input`, which contains `u8` of the shape (N, `height`, `width`, 3), to `dtype` in
/// `layout`. `ops` is empty or contains one entry per sample.
pub(crate) fn convert(
    input: &[u8],
    ops: &[Ops],
    (height, width): (usize, usize),
    dtype: Dtype,
    layout: Layout,
    normalize: Normalize,
) -> Vec<u8> {
    let pixels = height * width;
    let count = input.len() / (pixels * 3);
    let (scale, bias) = if dtype == Dtype::U8 { ([1.0; 3], [0.0; 3]) } else { normalize.scale_bias() };
    let no_ops = Ops::default();
    let ops_of = |n: usize| ops.get(n).unwrap_or(&no_ops);
    let value = |n: usize, y: usize, x: usize, c: usize| -> f32 {
        let ops = ops_of(n);
        if let Some((rect, fill)) = ops.erase
            && inside(rect, x, y)
        {
            return fill[c];
        }
        scale[c].mul_add(input[((n * height + y) * width + x) * 3 + c].into(), bias[c])
    };
    let mut out = Vec::with_capacity(input.len() * dtype.bytes());
    for n in 0..count {
        for i in 0..pixels * 3 {
            let (c, pixel) = if layout == Layout::Nhwc { (i % 3, i / 3) } else { (i / pixels, i % pixels) };
            let (y, x) = (pixel / width, pixel % width);
            let own_value = value(n, y, x, c);
            let converted = match (ops_of(n).mix, ops_of(n).cut) {
                (Some((partner, weight)), _) => value(partner, y, x, c) * (1.0 - weight) + own_value * weight,
                (None, Some((partner, rect))) if inside(rect, x, y) => value(partner, y, x, c),
                _ => own_value,
            };
            match dtype {
                Dtype::U8 => out.push(converted.round() as u8),
                Dtype::F32 => out.extend(converted.to_ne_bytes()),
                Dtype::F16 => out.extend(f16::from_f32(converted).to_ne_bytes()),
                _ => out.extend(bf16::from_f32(converted).to_ne_bytes()),
            }
        }
    }
    out
}

/// Computes the same checksum as the `checksum` kernel in `examples/kernels/probe.cu`.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks::<4>().0;
    words.iter().enumerate().fold(0, |sum: u64, (i, word)| {
        let mut z = (u64::from(u32::from_ne_bytes(*word)) << 32 | i as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        sum.wrapping_add(z ^ (z >> 31))
    })
}
