//! [`MemoryPlan`] lists the maximum memory of a loader.

use std::fmt;

use serde::Serialize;

use super::scratch::ScratchPlan;

/// Maximum memory of a loader. All sizes are in bytes. Slots and device memory are allocated when
/// the loader is opened. Workers allocate scratch memory when they need it.
///
/// Scratch memory contains the encoded bytes and pixels of images in progress, and the decoders'
/// working memory. The loader estimates the memory of larger images from their headers
/// ([`Codec::decode_memory`](crate::decode::Codec::decode_memory)), and counts only the pixels of
/// small images. An image that needs more than a worker's own share waits until it may use
/// `shared_scratch_bytes`.
///
/// An image that needs more than all shared memory waits until no other image uses that memory, and
/// then exceeds the plan. Set [`Loader::max_pixels`](crate::Loader::max_pixels) to reject such
/// images.
///
/// The plan excludes:
///
/// - the threads' stacks;
/// - the source's own memory;
/// - samples that a source copies, if their encoded bytes exceed an eighth of a worker's share,
///   while the worker waits for shared memory;
/// - the coefficients of a damaged JPEG while it is decoded, because the header does not reveal the
///   damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// Number of batch buffers (slots) in host memory. If
    /// [`Loader::prefetch`](crate::Loader::prefetch) is automatic, this is the maximum number.
    pub slots: usize,
    /// Number of slots that the current prefetch depth uses. The other slots are reserved for a
    /// larger prefetch depth. Unless slots are page-locked, the operating system provides the
    /// memory of a slot only at its first use.
    pub slots_in_use: usize,
    /// Size of one slot.
    pub slot_bytes: usize,
    /// Total size of all slots.
    pub host_bytes: usize,
    /// Page-locked part of `host_bytes`: either all bytes or 0.
    pub pinned_bytes: usize,
    /// Total size of the memory on the device.
    pub device_bytes: usize,
    /// Number of batches that fit on the device, or 0 if batches are delivered in host memory.
    pub device_slots: usize,
    /// Part of `device_bytes` that holds images before they are converted.
    pub staging_bytes: usize,
    /// Maximum host memory in addition to the slots: the sum of the parts that the following fields
    /// describe.
    pub scratch_bytes: usize,
    /// Scratch memory that each worker owns. `scratch_bytes` includes this size once per worker.
    pub worker_scratch_bytes: usize,
    /// Part of `scratch_bytes` that workers share, for images that exceed a worker's own share.
    pub shared_scratch_bytes: usize,
    /// Part of `scratch_bytes` for samples that reader threads read ahead when storage is slow.
    /// Each reader may exceed this limit by one sample. If a group of samples is larger than the
    /// limit, it is read while the readers have no other group in memory.
    pub readahead_bytes: usize,
    /// Part of `scratch_bytes` for samples that the source prefetches
    /// ([`Source::prefetcher`](crate::source::Source::prefetcher)).
    pub source_prefetch_bytes: usize,
    /// Part of `scratch_bytes` for your own transforms
    /// ([`Transform::retained_bytes`](crate::transform::Transform::retained_bytes)).
    pub transform_bytes: usize,
    /// Part of `scratch_bytes` for decoded images
    /// ([`Loader::cache_decoded`](crate::Loader::cache_decoded)).
    pub decoded_cache_bytes: usize,
}

impl MemoryPlan {
    /// Returns the plan of a loader that delivers batches in host memory.
    pub(crate) fn new(slots: usize, slot_bytes: usize, scratch: &ScratchPlan) -> Self {
        MemoryPlan {
            slots,
            slots_in_use: slots,
            slot_bytes,
            host_bytes: slots * slot_bytes,
            pinned_bytes: 0,
            device_bytes: 0,
            device_slots: 0,
            staging_bytes: 0,
            scratch_bytes: scratch.total_bytes(),
            worker_scratch_bytes: scratch.fixed_bytes + scratch.worker_bytes,
            shared_scratch_bytes: scratch.shared_bytes,
            readahead_bytes: scratch.readahead_bytes,
            source_prefetch_bytes: scratch.source_bytes,
            transform_bytes: scratch.transform_bytes,
            decoded_cache_bytes: scratch.cache_bytes,
        }
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        let kind = if self.pinned_bytes > 0 { "page-locked" } else { "ordinary" };
        write!(
            f,
            "{} slots of {:.1} MiB: {:.1} MiB of {kind} host memory",
            self.slots,
            mib(self.slot_bytes),
            mib(self.host_bytes)
        )?;
        if self.slots_in_use < self.slots {
            write!(f, " at most, {} slots in use", self.slots_in_use)?;
        }
        if self.device_bytes > 0 {
            write!(f, ", {:.1} MiB on the device", mib(self.device_bytes))?;
            write!(f, " ({:.1} MiB for staging)", mib(self.staging_bytes))?;
        }
        write!(
            f,
            "; workers use at most {:.1} MiB: {:.1} MiB each, {:.1} MiB shared for large images",
            mib(self.scratch_bytes),
            mib(self.worker_scratch_bytes),
            mib(self.shared_scratch_bytes)
        )?;
        if self.readahead_bytes > 0 {
            write!(f, ", {:.1} MiB to read ahead", mib(self.readahead_bytes))?;
        }
        if self.source_prefetch_bytes > 0 {
            write!(f, ", {:.1} MiB for the source to prefetch", mib(self.source_prefetch_bytes))?;
        }
        if self.transform_bytes > 0 {
            write!(f, ", {:.1} MiB for transforms", mib(self.transform_bytes))?;
        }
        if self.decoded_cache_bytes > 0 {
            write!(f, ", {:.1} MiB for decoded images", mib(self.decoded_cache_bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_plan_prints_each_size_in_mib() {
        let mib = |tenths: usize| tenths * (1 << 20) / 10;
        let host = MemoryPlan {
            slots: 3,
            slots_in_use: 3,
            slot_bytes: mib(25),
            host_bytes: mib(75),
            pinned_bytes: 0,
            device_bytes: 0,
            device_slots: 0,
            staging_bytes: 0,
            scratch_bytes: mib(640),
            worker_scratch_bytes: mib(160),
            shared_scratch_bytes: mib(320),
            readahead_bytes: 0,
            source_prefetch_bytes: 0,
            transform_bytes: 0,
            decoded_cache_bytes: 0,
        };
        let workers = "; workers use at most 64.0 MiB: 16.0 MiB each, 32.0 MiB shared for large images";
        assert_eq!(host.to_string(), format!("3 slots of 2.5 MiB: 7.5 MiB of ordinary host memory{workers}"));
        let (pinned_bytes, device_bytes, staging_bytes) = (mib(75), mib(90), mib(15));
        let device = MemoryPlan { slots_in_use: 2, pinned_bytes, device_bytes, staging_bytes, ..host };
        let (readahead_bytes, source_prefetch_bytes, transform_bytes, decoded_cache_bytes) =
            (mib(40), mib(10), mib(2), mib(30));
        let full_plan =
            MemoryPlan { readahead_bytes, source_prefetch_bytes, transform_bytes, decoded_cache_bytes, ..device };
        assert_eq!(
            full_plan.to_string(),
            format!(
                "3 slots of 2.5 MiB: 7.5 MiB of page-locked host memory at most, 2 slots in use, 9.0 MiB on the \
                 device (1.5 MiB for staging){workers}, 4.0 MiB to read ahead, 1.0 MiB for the source to \
                 prefetch, 0.2 MiB for transforms, 3.0 MiB for decoded images"
            )
        );
    }
}
