//! [`Split`]: decides which steps of an image run on a device.

use crate::transform::Augment;

/// The steps of an image that run on a device instead of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    /// Whether batches are copied to a device, which then normalizes, casts, transposes and mixes
    /// the images.
    pub(crate) on_device: bool,
    /// Space in a batch for images that the device decodes and resizes, or `None` if the device
    /// does not decode images.
    pub(crate) decode: Option<DecodeSpace>,
    /// Whether the device runs a sample's effects on pixels, if it supports all of these effects.
    /// Requires `records`.
    pub(crate) retouch: bool,
    /// Whether a batch contains a record of the operations on each image. The effects on values are
    /// read from these records by the device, or by the host if the host mixes the images.
    pub(crate) records: bool,
}

impl Split {
    /// Returns the split in which all steps run on the host. If images are mixed, they are
    /// converted only when the batch is full. Until then, records store their effects on values.
    pub(crate) fn host<'a>(augments: impl IntoIterator<Item = &'a Augment>) -> Self {
        let records = augments.into_iter().any(|augment| augment.mixes() && augment.changes_values());
        Split { on_device: false, decode: None, retouch: false, records }
    }

    /// Returns whether the device runs the effects on values.
    pub(crate) fn values(&self) -> bool {
        self.on_device && self.records
    }
}

/// Maximum number of bytes that are reserved for a video frame. Workers convert larger frames to RGB
/// when the space is full.
const MAX_FRAME_BYTES: usize = 1 << 20;

/// Space that a batch reserves for images that a device decodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodeSpace {
    /// Number of images per sample.
    pub(crate) images: usize,
    /// Number of encoded bytes per image.
    pub(crate) bytes: usize,
    /// Number of coefficient blocks per image.
    pub(crate) blocks: usize,
}

impl DecodeSpace {
    /// Reserves enough for video frames of `pixels` pixels, with 8 bits and 4:2:0 chroma. Returns
    /// whether the space has changed.
    pub(crate) fn reserve_for_video(&mut self, pixels: u64) -> bool {
        let samples = usize::try_from(pixels.div_ceil(2)).unwrap_or(MAX_FRAME_BYTES).saturating_mul(3);
        let frame = samples.saturating_add(256).min(MAX_FRAME_BYTES).next_multiple_of(64);
        let grows = pixels > 0 && frame > self.bytes;
        self.bytes = if grows { frame } else { self.bytes };
        grows
    }
}
