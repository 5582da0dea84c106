use serde::{Deserialize, Serialize};

/// A wait below this share of the time is too short to matter.
pub(super) const STALLED: f64 = 0.05;
/// Workers that are busy for this share of the time are saturated.
pub(super) const SATURATED: f64 = 0.75;
/// A copy or convert stream that is busy for this share of the time is saturated.
pub(super) const STREAM_SATURATED: f64 = 0.8;
/// The verdict needs at least this many batches.
pub(super) const LEAST_BATCHES: u64 = 4;

/// The stage that limits a loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    /// The consumer. It hardly waits.
    Step,
    /// Reading samples.
    Read,
    /// Decoding.
    Decode,
    /// Crop, resize, colour, or the user's transforms.
    Transform,
    /// Memory: normalising, casting and writing the batch.
    Memory,
    /// A field that computes. The text names it.
    Field,
    /// The copy to the device.
    Copy,
    /// The conversion on the device.
    Convert,
    /// The decoding on the device.
    DeviceDecode,
    /// Fewer workers than processors.
    Workers,
    /// Too few batches ahead to even out uneven steps or samples.
    Slots,
    /// One or a few samples that take very long.
    Straggler,
    /// The beginnings of epochs.
    EpochStart,
    /// The numbers show no single cause.
    Unclear,
}

/// A limit in a few words, and the lines behind it.
pub(super) type Judgement = (Limit, String, Vec<String>);

/// A share of 0 to 1 in whole percent. Two clocks may make it a little more than 1.
pub(super) fn percent(share: f64) -> u32 {
    (100.0 * share.clamp(0.0, 1.0)).round() as u32
}
