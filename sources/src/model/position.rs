//! [`Position`]: where an epoch contains a sample.

/// Where an epoch contains a sample: the position in the epoch's order of samples, or, in
/// [`Lookahead::with_next`], the index of the batch.
///
/// [`Lookahead::with_next`]: crate::Lookahead::with_next
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {
    /// The sample is at this position.
    At(u64),
    /// The sample does not occur in the queried range of the epoch.
    Absent,
    /// The order cannot be searched for a sample, for example because it draws with replacement.
    Unknown,
}

impl Position {
    /// Returns [`Position::At`], or [`Position::Absent`] if `position` is before `from`.
    pub fn not_before(position: u64, from: u64) -> Self {
        if position < from { Position::Absent } else { Position::At(position) }
    }
}
