//! [`Split`]: which steps of an image run on a device.

use crate::transform::Augment;

/// The steps of an image that run on a device instead of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    /// Whether batches are copied to a device, which then normalizes, casts, transposes and mixes
    /// the images.
    pub(crate) there: bool,
    /// Space in a batch for images that the device decodes and resizes, or `None` if it does not
    /// decode images.
    pub(crate) decode: Option<DecodeSpace>,
    /// Whether the device runs the effects on pixels if it supports all effects of a sample.
    /// Requires `records`.
    pub(crate) retouch: bool,
    /// Whether a batch contains a record of the operations on each image. The device, or the host
    /// if it mixes the images, reads the effects on values from the records.
    pub(crate) records: bool,
}

impl Split {
    /// Returns the split in which all steps run on the host. If images are mixed, they are
    /// converted only when the batch is full, and their effects on values are stored in records
    /// until then.
    pub(crate) fn host(augment: &Augment) -> Self {
        Split { there: false, decode: None, retouch: false, records: augment.mixes() && augment.changes_values() }
    }

    /// Returns whether the device runs the effects on values.
    pub(crate) fn values(&self) -> bool {
        self.there && self.records
    }
}

/// Space that a batch reserves per sample for images that a device decodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodeSpace {
    /// Number of encoded bytes.
    pub(crate) bytes: usize,
    /// Number of coefficient blocks.
    pub(crate) blocks: usize,
}
