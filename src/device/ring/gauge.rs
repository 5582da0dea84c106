use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::super::spec::DeviceMemory;

/// Device memory as PyTorch's `torch.cuda.memory_stats` calls it, in bytes; and what went through
/// the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct DeviceStats {
    /// In batches that are ready or in the consumer's hands.
    pub allocated: usize,
    /// The most that was ever allocated.
    pub peak: usize,
    /// Taken from the device when the loader was opened.
    pub reserved: usize,
    /// Batches copied to the device.
    pub batches: u64,
    /// Bytes copied to the device.
    pub copied_bytes: u64,
}

/// What went through a ring, for whoever asks, on any thread.
#[derive(Clone)]
pub(crate) struct Gauge {
    pub(super) counters: Arc<Counters>,
    pub(super) plan: DeviceMemory,
}

impl Gauge {
    pub(crate) fn stats(&self) -> DeviceStats {
        let Gauge { counters, plan } = self;
        let bytes = |slots: &AtomicUsize| slots.load(Ordering::Relaxed) * plan.slot_bytes;
        DeviceStats {
            allocated: bytes(&counters.slots),
            peak: bytes(&counters.peak),
            reserved: plan.total(),
            batches: counters.batches.load(Ordering::Relaxed),
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
