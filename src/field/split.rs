use crate::transform::Augment;

/// Decides which steps of an image run on a device instead of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    /// Whether batches go to a device, which then normalizes, casts, transposes and mixes the
    /// images.
    pub(crate) there: bool,
    /// Space for images that the device decodes and resizes, or `None` if it does not decode
    /// images.
    pub(crate) decode: Option<Room>,
    /// Whether the device runs effects on pixels for those samples whose effects it supports.
    /// Requires `records`.
    pub(crate) retouch: bool,
    /// Whether each image has one record per sample that stores the operations on it. The device
    /// runs the effects on values that are in these records. If the host mixes images, it uses the
    /// records in the same way.
    pub(crate) records: bool,
}

impl Split {
    /// Returns the split that runs all steps on the host. If images are mixed, they are written
    /// when the batch is full, so their effects on values are stored in records until then.
    pub(crate) fn host(augment: &Augment) -> Self {
        Split { there: false, decode: None, retouch: false, records: augment.mixes() && augment.changes_values() }
    }

    /// Returns whether the device runs the effects on values.
    pub(crate) fn values(&self) -> bool {
        self.there && self.records
    }
}

/// Space that is reserved per sample for an image that a device decodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Number of encoded bytes.
    pub(crate) bytes: usize,
    /// Number of coefficient blocks.
    pub(crate) blocks: usize,
}
