use crossbeam::channel::Sender;

use super::filled::Filled;

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

impl DecodeOn {
    /// Whether the next part of a batch is left to the device. `filled` holds the batches that are
    /// ready and that nobody has taken.
    pub(super) fn device_now(self, filled: &Sender<Filled>) -> bool {
        match self {
            DecodeOn::Cpu => false,
            DecodeOn::Gpu => true,
            // With a batch to spare the consumer is the slower one, and its device is needed for
            // better things.
            DecodeOn::Auto => filled.is_empty(),
        }
    }
}
