//! The conversion of pixels to elements of the batch, and the interface of the SIMD code.

use crate::batch::Layout;

#[derive(Debug, Clone, Copy)]
pub(super) struct Cast {
    pub(super) element_type: ElementType,
    pub(super) layout: Layout,
    pub(super) scale: [f32; 3],
    pub(super) bias: [f32; 3],
}

impl Cast {
    pub(super) fn is_copy(&self) -> bool {
        self.element_type == ElementType::U8 && self.layout == Layout::Nhwc
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementType {
    U8,
    F32,
    F16,
    Bf16,
}

impl ElementType {
    pub(super) fn bytes(self) -> usize {
        match self {
            ElementType::U8 => 1,
            ElementType::F32 => 4,
            ElementType::F16 | ElementType::Bf16 => 2,
        }
    }

    /// Returns the bits of the element for `value`. For `u8`, `value` is rounded, and clamped to 0
    /// to 255.
    pub(super) fn bits(self, value: f32) -> u32 {
        match self {
            ElementType::U8 => value.round() as u8 as u32,
            ElementType::F32 => value.to_bits(),
            ElementType::F16 => half::f16::from_f32(value).to_bits().into(),
            ElementType::Bf16 => half::bf16::from_f32(value).to_bits().into(),
        }
    }
}

/// Returns the lowest `B` bytes of `bits`, in native byte order.
pub(super) fn element<const B: usize>(bits: u32) -> [u8; B] {
    let little_endian = bits.to_le_bytes();
    std::array::from_fn(|i| little_endian[if cfg!(target_endian = "big") { B - 1 - i } else { i }])
}

/// The SIMD code for one instruction set. Writes the pixels of an image in steps of 16, and returns
/// the number of pixels that were written. The remaining pixels do not fill a step. If `blend` is
/// set, blends the pixels with a second image. Otherwise, writes nothing if [`Cast::is_copy`] is
/// true. The caller must have checked the lengths.
pub(super) type VectorWriter = fn(&Cast, image: &[u8], blend: Option<Blend<'_>>, dst: &mut [u8]) -> usize;

#[derive(Clone, Copy)]
pub(super) struct Blend<'a> {
    /// The second image, which is as large as the first.
    pub(super) partner: &'a [u8],
    /// Weight of the first image. The second has weight `1 - weight`.
    pub(super) weight: f32,
}
