use std::sync::atomic::{AtomicBool, Ordering};

/// Where JPEGs of device batches are decoded. The pixels are the same, bit for bit.
///
/// A worker hands the device the compressed bytes that a crop needs. The device decodes, crops and
/// resizes them. So a sample costs a worker about a tenth of the time, and the device some
/// microseconds. See [`Loader::decode_on`](crate::Loader::decode_on).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DecodeOn {
    /// On the workers.
    #[default]
    Cpu,
    /// On the device, as far as it can.
    Gpu,
    /// On the device while the workers alone are too slow for the consumer.
    Auto,
}

/// Decides between workers and device, a part of a batch at a time.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    on: DecodeOn,
    /// Whether the device has all the batches that it has room for.
    supplied: AtomicBool,
}

impl Balance {
    pub(crate) fn new(on: DecodeOn) -> Self {
        Balance { on, supplied: AtomicBool::new(false) }
    }

    /// The device has all the batches that it has room for, or not any more.
    pub(super) fn supplied(&self, supplied: bool) {
        self.supplied.store(supplied, Ordering::Relaxed);
    }

    /// Whether the next part of a batch is left to the device.
    pub(super) fn device_now(&self) -> bool {
        match self.on {
            DecodeOn::Cpu => false,
            DecodeOn::Gpu => true,
            // Either the consumer is the slower one, and needs its device for better things, or the
            // device decodes as fast as it can.
            DecodeOn::Auto => !self.supplied.load(Ordering::Relaxed),
        }
    }
}
