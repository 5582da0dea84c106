//! [`Bottleneck`], the resource that limits a loader, and the thresholds of the verdict.

use serde::{Deserialize, Serialize};

/// The loader is the bottleneck only if the consumer waits for at least this fraction of the time.
pub(super) const MIN_STALL_FRACTION: f64 = 0.05;
/// Workers are saturated if they are busy for at least this fraction of the time.
pub(super) const MIN_BUSY_FRACTION: f64 = 0.75;
/// A device is saturated if copying, converting or decoding takes at least this fraction of the
/// time.
pub(super) const MIN_STREAM_FRACTION: f64 = 0.8;
pub(super) const MIN_BATCHES: u64 = 4;

/// The resource that limits the speed of a loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bottleneck {
    /// The consumer's step. The consumer hardly waits for the loader.
    Step,
    /// Reading samples.
    Read,
    /// Reading samples from a store.
    Network,
    /// Decoding images.
    Decode,
    /// Cropping, resizing, changing colors, or custom transforms.
    Transform,
    /// Memory bandwidth, used to normalize, cast and write the batch.
    Memory,
    /// Computing a field, which the text of the verdict names.
    Field,
    /// Copying batches to the device.
    Copy,
    /// Converting batches on the device.
    Convert,
    /// Decoding images on the device.
    DeviceDecode,
    /// The number of workers, which is less than the number of cores.
    Workers,
    /// The number of prefetched batches, which is too small to even out differences between steps
    /// or between samples.
    Slots,
    /// A few very slow samples.
    Straggler,
    /// Waiting for the first batches of epochs.
    EpochStart,
    /// No single cause.
    Unclear,
}

/// A bottleneck, a headline, and lines with evidence and advice.
pub(super) type Judgment = (Bottleneck, String, Vec<String>);

/// Converts a fraction to a whole number of percent, at most 100. The fraction may slightly exceed
/// 1, because clocks differ.
pub(super) fn percent(share: f64) -> u32 {
    (100.0 * share.clamp(0.0, 1.0)).round() as u32
}
