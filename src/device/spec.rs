use std::fmt;

use crate::batch::{ALIGN, Dtype, Field, Layout, Normalize};
use crate::cuda::SampleOps;

/// What crosses the bus and what the consumer gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spec {
    /// Samples a full batch.
    pub(crate) batch: usize,
    /// Rows of an image.
    pub(crate) height: usize,
    /// Pixels a row.
    pub(crate) width: usize,
    /// Element type of the images on the device.
    pub(crate) dtype: Dtype,
    /// Order of their axes on the device. They cross the bus as u8 (N, H, W, 3) in any case.
    pub(crate) layout: Layout,
    /// Normalisation on the device; not used for [`Dtype::U8`].
    pub(crate) normalize: Normalize,
    /// The fields that go along as they are: labels first, if there are any.
    pub(crate) fields: Vec<Field>,
    /// Whether batches bring one [`SampleOps`] record a sample.
    pub(crate) ops: bool,
    /// Classes and smoothing, if labels are also wanted as f32 rows of (classes).
    pub(crate) soft_labels: Option<(usize, f32)>,
}

/// Offsets in a device slot, and the bytes of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Offset of each field; the images are at 0.
    pub(crate) fields: Vec<usize>,
    /// Offset of the soft labels, if any.
    pub(crate) soft: Option<usize>,
    /// Offset of the per-sample records, if any.
    pub(crate) ops: Option<usize>,
    pub(crate) bytes: usize,
}

/// Device memory of a loader, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceMemory {
    /// Batches that exist at once: those ready, and the one the consumer has.
    pub(crate) slots: usize,
    /// Bytes a batch, all its fields together.
    pub(crate) slot_bytes: usize,
    /// Buffers that u8 images are copied to before they are converted; 0 where they are used as
    /// they come.
    pub(crate) staging: usize,
    /// Bytes of each.
    pub(crate) staging_bytes: usize,
}

impl DeviceMemory {
    /// All of it: what is taken in one piece when the loader opens.
    pub(crate) fn total(&self) -> usize {
        self.slots * self.slot_bytes + self.staging * self.staging_bytes
    }
}

impl fmt::Display for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        write!(f, "device {:.1} MB: {} batches of {:.1} MB", mb(self.total()), self.slots, mb(self.slot_bytes))?;
        if self.staging > 0 {
            write!(f, ", {} staging buffers of {:.1} MB", self.staging, mb(self.staging_bytes))?;
        }
        Ok(())
    }
}

impl Spec {
    /// Bytes of `samples` images as they cross the bus.
    pub(crate) fn upload_bytes(&self, samples: usize) -> usize {
        samples * self.height * self.width * 3
    }

    /// Bytes of `samples` images on the device.
    pub(crate) fn image_bytes(&self, samples: usize) -> usize {
        self.upload_bytes(samples) * self.dtype.bytes()
    }

    /// Whether everything is used as it comes: u8, channels last, nothing computed on the device.
    pub(crate) fn is_copy(&self) -> bool {
        self.dtype == Dtype::U8 && self.layout == Layout::Nhwc && !self.ops && self.soft_labels.is_none()
    }

    /// Device memory with `prefetch` batches ready ahead of the consumer.
    pub(crate) fn memory(&self, prefetch: usize) -> DeviceMemory {
        // Two staging buffers: one is filled while the other is converted.
        let staging = if self.is_copy() { 0 } else { 2 };
        DeviceMemory {
            slots: prefetch.max(1).saturating_add(1),
            slot_bytes: self.slot().bytes,
            staging,
            staging_bytes: self.upload_bytes(self.batch).next_multiple_of(ALIGN),
        }
    }

    pub(crate) fn slot(&self) -> Slot {
        let mut end = self.image_bytes(self.batch).next_multiple_of(ALIGN);
        let mut take = |bytes: usize| {
            let at = end;
            end += bytes.next_multiple_of(ALIGN);
            at
        };
        let fields = self.fields.iter().map(|field| take(self.batch * field.sample_bytes())).collect();
        let soft = self.soft_labels.map(|(classes, _)| take(self.batch * classes * 4));
        let ops = self.ops.then(|| take(self.batch * SampleOps::BYTES));
        Slot { fields, soft, ops, bytes: end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(dtype: Dtype, ops: bool) -> Spec {
        let label = Field { name: "label".into(), dtype: Dtype::I64, shape: vec![] };
        Spec {
            batch: 10,
            height: 5,
            width: 7,
            dtype,
            layout: Layout::Nhwc,
            normalize: Normalize::UNIT,
            fields: vec![label],
            ops,
            soft_labels: ops.then_some((100, 0.1)),
        }
    }

    #[test]
    fn a_plan_is_exact_to_the_byte() {
        let plain = spec(Dtype::U8, false);
        assert_eq!(plain.slot(), Slot { fields: vec![1280], soft: None, ops: None, bytes: 1536 });
        assert_eq!(plain.memory(4).total(), 5 * 1536, "no staging for what is used as it comes");
        let full = spec(Dtype::F32, true);
        assert_eq!(full.slot(), Slot { fields: vec![4352], soft: Some(4608), ops: Some(8704), bytes: 9472 });
        assert_eq!(full.memory(4).total(), 5 * 9472 + 2 * 1280);
    }
}
