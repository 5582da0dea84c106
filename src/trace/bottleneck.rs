use serde::{Deserialize, Serialize};

/// Minimum fraction of time that the consumer must wait for the loader to count as the bottleneck.
pub(super) const STALLED: f64 = 0.05;
/// Minimum fraction of busy time at which workers count as saturated.
pub(super) const SATURATED: f64 = 0.75;
/// Minimum fraction of busy time at which a copy or convert stream counts as saturated.
pub(super) const STREAM_SATURATED: f64 = 0.8;
/// Minimum number of batches that a verdict requires.
pub(super) const LEAST_BATCHES: u64 = 4;

/// The bottleneck of a loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bottleneck {
    /// The consumer's own step. The consumer hardly waits for the loader.
    Step,
    /// Reading samples.
    Read,
    /// Reading samples from a store.
    Network,
    /// Decoding.
    Decode,
    /// Crop, resize, color changes, or custom transforms.
    Transform,
    /// Memory bandwidth: normalizing, casting and writing the batch.
    Memory,
    /// A computed field, which is named in the text.
    Field,
    /// The copy to the device.
    Copy,
    /// The conversion on the device.
    Convert,
    /// The decoding on the device.
    DeviceDecode,
    /// Fewer workers than cores.
    Workers,
    /// Too few prefetched batches to even out uneven steps or samples.
    Slots,
    /// One or a few very slow samples.
    Straggler,
    /// The starts of epochs.
    EpochStart,
    /// No single cause.
    Unclear,
}

/// A bottleneck, its headline, and lines with evidence and advice.
pub(super) type Judgment = (Bottleneck, String, Vec<String>);

/// Converts a fraction from 0 to 1 to whole percent. Because of clock differences, the fraction may
/// slightly exceed 1.
pub(super) fn percent(share: f64) -> u32 {
    (100.0 * share.clamp(0.0, 1.0)).round() as u32
}
