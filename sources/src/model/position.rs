//! [`Position`]: the position of a sample in an epoch.

/// The position of a sample in an epoch. In [`Lookahead::with_next`], it is the index of the batch
/// that contains the sample.
///
/// [`Lookahead::with_next`]: crate::Lookahead::with_next
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {
    /// The sample is at this position.
    At(u64),
    /// The sample does not occur in the queried range of the epoch.
    Absent,
    /// The position cannot be found in constant time, for example because the order is sampled with
    /// replacement or cannot be inverted.
    Unknown,
}

impl Position {
    /// Returns `position`, or [`Position::Absent`] if `position` is before `from`.
    pub fn not_before(position: u64, from: u64) -> Self {
        if position < from { Position::Absent } else { Position::At(position) }
    }
}
