use serde::{Deserialize, Serialize};

/// Minimum share of the time that the consumer waits before the loader is the limit.
pub(super) const STALLED: f64 = 0.05;
/// Minimum busy share of saturated workers.
pub(super) const SATURATED: f64 = 0.75;
/// Minimum busy share of a saturated copy or convert stream.
pub(super) const STREAM_SATURATED: f64 = 0.8;
/// Minimum number of batches for a verdict.
pub(super) const LEAST_BATCHES: u64 = 4;

/// The stage that limits a loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bottleneck {
    /// The consumer, which hardly waits.
    Step,
    /// Reading samples.
    Read,
    /// Reading samples from a store.
    Network,
    /// Decoding.
    Decode,
    /// Crop, resize, color, or the user's transforms.
    Transform,
    /// Memory: normalizing, casting and writing the batch.
    Memory,
    /// A field that computes. The text names it.
    Field,
    /// The copy to the device.
    Copy,
    /// The conversion on the device.
    Convert,
    /// The decoding on the device.
    DeviceDecode,
    /// Fewer workers than cores.
    Workers,
    /// Too few batches ahead to even out uneven steps or samples.
    Slots,
    /// One or a few samples that take very long.
    Straggler,
    /// The starts of epochs.
    EpochStart,
    /// The numbers show no single cause.
    Unclear,
}

/// A limit, its headline, and the lines of evidence and advice.
pub(super) type Judgment = (Bottleneck, String, Vec<String>);

/// Converts a share of 0 to 1 to whole percent. Differences between clocks may exceed 1 slightly.
pub(super) fn percent(share: f64) -> u32 {
    (100.0 * share.clamp(0.0, 1.0)).round() as u32
}
