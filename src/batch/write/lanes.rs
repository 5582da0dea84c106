//! The SIMD code that AVX2 and NEON share. It computes eight floats at a time.
//!
//! The file for each instruction set defines `Floats` (eight floats), `Bytes` (16 bytes), and the
//! operations on them.
//!
//! **Invariants**
//! 1. Functions marked `target_feature` run only through `choose`, which checks that the CPU
//!    supports the features.

use super::cast::ElementType;

/// Number of pixels per step. 16 pixels are three vectors of 16 bytes.
pub(super) const STEP: usize = 16;

pub(super) const U8: u8 = ElementType::U8 as u8;
pub(super) const F32: u8 = ElementType::F32 as u8;
pub(super) const F16: u8 = ElementType::F16 as u8;
pub(super) const BF16: u8 = ElementType::Bf16 as u8;

pub(super) const fn element_bytes(element_type: u8) -> usize {
    match element_type {
        U8 => 1,
        F32 => 4,
        _ => 2,
    }
}

/// The float just below 0.5. Adding it and truncating rounds a number from 0 to 255. With 0.5
/// itself, 0.49999997 would become 1.
pub(super) const BELOW_HALF: f32 = 0.5f32.next_down();

macro_rules! lanes {
    ($features:literal, $is_supported:expr) => {
        use super::cast::{Blend, Cast, ElementType, VectorWriter};
        use super::lanes::{BELOW_HALF, BF16, F16, F32, STEP, U8, element_bytes};
        use crate::batch::Layout;

        pub(super) fn choose() -> Option<VectorWriter> {
            // SAFETY: invariant 1; the features were just detected.
            $is_supported.then_some(|cast, image, blend, dst| unsafe { write(cast, image, blend, dst) })
        }

        #[target_feature(enable = $features)]
        fn write(cast: &Cast, image: &[u8], blend: Option<Blend<'_>>, dst: &mut [u8]) -> usize {
            let pixels = image.as_chunks::<{ 3 * STEP }>().0;
            match blend {
                None if cast.is_copy() => return 0,
                None => write_pixels::<false>(cast, pixels, pixels, 1.0, dst),
                Some(Blend { partner, weight }) => {
                    write_pixels::<true>(cast, pixels, partner.as_chunks().0, weight, dst)
                }
            }
            pixels.len() * STEP
        }

        /// Writes `pixels`. With `MIX`, each output value is `weight` times the value in `pixels`
        /// plus `1 - weight` times the value in `partners`, the pixels of a second image.
        #[target_feature(enable = $features)]
        fn write_pixels<const MIX: bool>(
            cast: &Cast,
            pixels: &[[u8; 3 * STEP]],
            partners: &[[u8; 3 * STEP]],
            weight: f32,
            dst: &mut [u8],
        ) {
            match (cast.layout, cast.element_type) {
                (Layout::Nhwc, ElementType::U8) => write_interleaved::<U8, MIX>(cast, pixels, partners, weight, dst),
                (Layout::Nhwc, ElementType::F32) => write_interleaved::<F32, MIX>(cast, pixels, partners, weight, dst),
                (Layout::Nhwc, ElementType::F16) => write_interleaved::<F16, MIX>(cast, pixels, partners, weight, dst),
                (Layout::Nhwc, ElementType::Bf16) => {
                    write_interleaved::<BF16, MIX>(cast, pixels, partners, weight, dst)
                }
                (Layout::Nchw, ElementType::U8) => write_planar::<U8, MIX>(cast, pixels, partners, weight, dst),
                (Layout::Nchw, ElementType::F32) => write_planar::<F32, MIX>(cast, pixels, partners, weight, dst),
                (Layout::Nchw, ElementType::F16) => write_planar::<F16, MIX>(cast, pixels, partners, weight, dst),
                (Layout::Nchw, ElementType::Bf16) => write_planar::<BF16, MIX>(cast, pixels, partners, weight, dst),
            }
        }

        /// Writes (H, W, C) output, in which scales and biases repeat every three vectors.
        #[target_feature(enable = $features)]
        fn write_interleaved<const ELEMENT: u8, const MIX: bool>(
            cast: &Cast,
            pixels: &[[u8; 3 * STEP]],
            partners: &[[u8; 3 * STEP]],
            weight: f32,
            dst: &mut [u8],
        ) {
            let around = |v: &[f32; 3], first: usize| from_array(std::array::from_fn(|lane| v[(first + lane) % 3]));
            let scale = [around(&cast.scale, 0), around(&cast.scale, 8), around(&cast.scale, 16)];
            let bias = [around(&cast.bias, 0), around(&cast.bias, 8), around(&cast.bias, 16)];
            let images = pixels.iter().zip(partners).zip(dst.chunks_exact_mut(3 * STEP * element_bytes(ELEMENT)));
            for ((own, partner), to) in images {
                let (own, partner) = (own.as_chunks::<8>().0, partner.as_chunks::<8>().0);
                for (i, to) in to.chunks_exact_mut(8 * element_bytes(ELEMENT)).enumerate() {
                    let pair = [own[i], partner[i]].map(i64::from_le_bytes);
                    store::<ELEMENT>(value::<MIX>(pair, scale[i % 3], bias[i % 3], weight), to);
                }
            }
        }

        /// Writes (C, H, W) output. Each step splits 16 pixels into three channels.
        #[target_feature(enable = $features)]
        fn write_planar<const ELEMENT: u8, const MIX: bool>(
            cast: &Cast,
            pixels: &[[u8; 3 * STEP]],
            partners: &[[u8; 3 * STEP]],
            weight: f32,
            dst: &mut [u8],
        ) {
            let plane = dst.len() / 3;
            let (red, rest) = dst.split_at_mut(plane);
            let (green, blue) = rest.split_at_mut(plane);
            let step = STEP * element_bytes(ELEMENT);
            let planes = red.chunks_exact_mut(step).zip(green.chunks_exact_mut(step)).zip(blue.chunks_exact_mut(step));
            let scale = cast.scale.map(|v| splat(v));
            let bias = cast.bias.map(|v| splat(v));
            for ((own, partner), ((red, green), blue)) in pixels.iter().zip(partners).zip(planes) {
                let first = deinterleave(own);
                let partner = if MIX { deinterleave(partner) } else { first };
                for (c, to) in [red, green, blue].into_iter().enumerate() {
                    if ELEMENT == U8 && !MIX {
                        store16(first[c], to);
                        continue;
                    }
                    let (low, high) = to.split_at_mut(step / 2);
                    let pair = [first[c], partner[c]];
                    let (lower, upper) = (pair.map(|v| lower(v)), pair.map(|v| upper(v)));
                    store::<ELEMENT>(value::<MIX>(lower, scale[c], bias[c], weight), low);
                    store::<ELEMENT>(value::<MIX>(upper, scale[c], bias[c], weight), high);
                }
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn value<const MIX: bool>([own, partner]: [i64; 2], scale: Floats, bias: Floats, weight: f32) -> Floats {
            let first = mul_add(widen(own), scale, bias);
            if !MIX {
                return first;
            }
            let partner = mul_add(widen(partner), scale, bias);
            // The device rounds both products and the sum, so do not use a fused multiply-add.
            let (a, b) = (splat(weight), splat(1.0 - weight));
            add(mul(partner, b), mul(first, a))
        }
    };
}
pub(super) use lanes;
