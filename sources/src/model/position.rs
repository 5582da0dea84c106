//! [`Position`]: the position of a sample in an epoch.

/// The position of a sample in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {
    /// The sample is at this position.
    At(u64),
    /// The sample does not occur in the queried range of the epoch.
    Absent,
    /// The sampler cannot find the position in constant time, because it samples with replacement
    /// or cannot invert its order.
    Unknown,
}

impl Position {
    /// Returns `position`, or [`Position::Absent`] if `position` is before `from`.
    pub fn not_before(position: u64, from: u64) -> Self {
        if position < from { Position::Absent } else { Position::At(position) }
    }
}
