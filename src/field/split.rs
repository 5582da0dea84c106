//! [`DeviceSplit`] determines which steps of an image run on a device.

use crate::transform::Augment;

#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceSplit {
    /// Whether a device normalizes, casts, transposes and mixes the images.
    pub(crate) on_device: bool,
    /// Space in a batch for images that the device decodes, if it decodes any.
    pub(crate) decode: Option<DecodeSpace>,
    /// Whether the device runs the effects on pixels, such as color jitter. For a sample with an
    /// effect on pixels that the device does not support, the host runs all effects on pixels.
    /// Requires `has_records`.
    pub(crate) retouches: bool,
    /// Whether a batch contains a record of the operations on each image. The device reads the
    /// effects from these records. If the host mixes the images, it reads the effects on values
    /// from them.
    pub(crate) has_records: bool,
}

impl DeviceSplit {
    /// Returns a split in which the host runs all steps. If images are mixed, they are converted
    /// only when the batch is full. Until then, records store the effects on values, such as random
    /// erasing.
    pub(crate) fn host<'a>(augments: impl IntoIterator<Item = &'a Augment>) -> Self {
        let has_records = augments.into_iter().any(|augment| augment.mixes() && augment.changes_values());
        DeviceSplit { on_device: false, decode: None, retouches: false, has_records }
    }

    pub(crate) fn changes_values(&self) -> bool {
        self.on_device && self.has_records
    }
}

/// Maximum number of bytes that are reserved for a video frame. If a frame does not fit into the
/// reserved space of the batch, a worker converts the frame to RGB.
const MAX_FRAME_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodeSpace {
    /// Number of images per sample.
    pub(crate) images: usize,
    /// Number of encoded bytes per image.
    pub(crate) bytes: usize,
    pub(crate) blocks: usize,
}

impl DecodeSpace {
    /// Reserves enough bytes per image for a video frame of `pixels` pixels with 8 bits and 4:2:0
    /// chroma, up to [`MAX_FRAME_BYTES`]. Returns whether the space has grown.
    pub(crate) fn reserve_for_video(&mut self, pixels: u64) -> bool {
        let samples = usize::try_from(pixels.div_ceil(2)).unwrap_or(MAX_FRAME_BYTES).saturating_mul(3);
        let frame = samples.saturating_add(256).min(MAX_FRAME_BYTES).next_multiple_of(64);
        let grows = pixels > 0 && frame > self.bytes;
        self.bytes = if grows { frame } else { self.bytes };
        grows
    }
}
