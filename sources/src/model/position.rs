/// Place of a sample in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {
    /// The sample is at this position.
    At(u64),
    /// The epoch does not have the sample there.
    Absent,
    /// The order cannot tell in constant time: samples are drawn with replacement, or the order has
    /// no inverse.
    Unknown,
}

impl Position {
    /// `position`, or [`Position::Absent`] if it is before `from`.
    pub fn not_before(position: u64, from: u64) -> Self {
        if position < from { Position::Absent } else { Position::At(position) }
    }
}
