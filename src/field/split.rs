use crate::transform::Augment;

/// Where the steps of an image run that the host could run: there, on a device, or here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    /// Whether batches go to a device. It then normalizes, casts, transposes and mixes the images.
    pub(crate) there: bool,
    /// Room for images that the device decodes and resizes, if it does.
    pub(crate) decode: Option<Room>,
    /// Whether the device runs effects on pixels, for samples whose effects it supports. It then
    /// has records.
    pub(crate) retouch: bool,
    /// Whether each image has one record per sample with its operations. The device runs effects
    /// on values from them, and so does the host if it mixes.
    pub(crate) records: bool,
}

impl Split {
    /// All steps run on the host. A mixed image is written when the batch is full, so its effects
    /// on values wait until then.
    pub(crate) fn host(augment: &Augment) -> Self {
        Split { there: false, decode: None, retouch: false, records: augment.mixes() && augment.changes_values() }
    }

    /// Whether the device runs the effects on values.
    pub(crate) fn values(&self) -> bool {
        self.there && self.records
    }
}

/// Room for an image that a device decodes, per sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Encoded bytes.
    pub(crate) bytes: usize,
    /// Blocks of coefficients.
    pub(crate) blocks: usize,
}
