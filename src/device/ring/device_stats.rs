use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::device::spec::DeviceMemory;

/// The device memory of a loader, and the amount of data copied there. The terms are from PyTorch's
/// `torch.cuda.memory_stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Size in bytes of the slots with batches that are ready, or that the consumer holds. Also
    /// counts slots of dropped batches whose reuse is deferred by a capture.
    pub allocated_bytes: usize,
    /// Maximum of `allocated_bytes` so far.
    pub peak_bytes: usize,
    /// Size in bytes of the device memory that was allocated when the loader was opened.
    pub reserved_bytes: usize,
    /// Number of copies of a batch to the device. A batch is copied twice if the device cannot
    /// decode one of its images.
    pub batch_copies: u64,
    /// Number of bytes copied to the device, without up to 128 KiB per batch that are copied twice.
    pub copied_bytes: u64,
}

#[derive(Clone)]
pub(crate) struct DeviceCounters {
    pub(super) counters: Arc<Counters>,
    pub(super) plan: DeviceMemory,
}

impl DeviceCounters {
    pub(crate) fn stats(&self) -> DeviceStats {
        let DeviceCounters { counters, plan } = self;
        let bytes = |slots: &AtomicUsize| slots.load(Ordering::Relaxed) * plan.slot_bytes;
        DeviceStats {
            allocated_bytes: bytes(&counters.slots),
            peak_bytes: bytes(&counters.peak),
            reserved_bytes: plan.total_bytes(),
            batch_copies: counters.batches.load(Ordering::Relaxed),
            copied_bytes: counters.bytes.load(Ordering::Relaxed),
        }
    }
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) slots: AtomicUsize,
    pub(super) peak: AtomicUsize,
    pub(super) held: AtomicUsize,
    pub(super) batches: AtomicU64,
    pub(super) bytes: AtomicU64,
}
