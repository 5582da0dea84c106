//! What becomes of a pixel's value, and where it goes.

use crate::batch::Layout;

/// Normalises, casts and lays out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cast {
    pub(super) kind: Kind,
    pub(super) layout: Layout,
    pub(super) scale: [f32; 3],
    pub(super) bias: [f32; 3],
}

impl Cast {
    /// Whether every byte stays as it is, where it is.
    pub(super) fn is_copy(&self) -> bool {
        self.kind == Kind::U8 && self.layout == Layout::Nhwc
    }
}

/// The element types that an image can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    U8,
    F32,
    F16,
    Bf16,
}

impl Kind {
    pub(super) fn bytes(self) -> usize {
        match self {
            Kind::U8 => 1,
            Kind::F32 => 4,
            Kind::F16 | Kind::Bf16 => 2,
        }
    }

    /// The element nearest to `value`, as bits. Bytes are rounded and kept within 0 to 255.
    pub(super) fn bits(self, value: f32) -> u32 {
        match self {
            Kind::U8 => value.round() as u8 as u32,
            Kind::F32 => value.to_bits(),
            Kind::F16 => half::f16::from_f32(value).to_bits().into(),
            Kind::Bf16 => half::bf16::from_f32(value).to_bits().into(),
        }
    }
}

/// The element whose bits are the lower ones of `bits`, in the machine's byte order.
pub(super) fn element<const B: usize>(bits: u32) -> [u8; B] {
    let little = bits.to_le_bytes();
    std::array::from_fn(|i| little[if cfg!(target_endian = "big") { B - 1 - i } else { i }])
}

/// A vector path: writes the first pixels of an image, perhaps blended with those of another, and
/// says how many, a multiple of its own step. Lengths have been checked.
pub(super) type Vector = fn(&Cast, image: &[u8], blend: Option<Blend<'_>>, dst: &mut [u8]) -> usize;

/// What a vector path blends into an image.
#[derive(Clone, Copy)]
pub(super) struct Blend<'a> {
    /// Pixels of the partner, as many as the image has.
    pub(super) partner: &'a [u8],
    /// The image's own share.
    pub(super) weight: f32,
}
