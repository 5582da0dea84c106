//! [`Since`]: computes the increase of statistics between two snapshots.

use std::collections::BTreeMap;

/// A monotonically increasing counter or sum, or a collection of such values.
pub trait Since {
    /// Returns the increase since the snapshot `earlier`, or 0 if `earlier` is larger, which can
    /// happen after a clock change.
    #[must_use]
    fn since(&self, earlier: &Self) -> Self;
}

impl Since for u64 {
    fn since(&self, earlier: &Self) -> Self {
        self.saturating_sub(*earlier)
    }
}

impl Since for f64 {
    fn since(&self, earlier: &Self) -> Self {
        (self - earlier).max(0.0)
    }
}

/// An absent snapshot counts as zero: if `earlier` is `None`, the increase is the current value
/// itself.
impl<T: Since + Clone> Since for Option<T> {
    fn since(&self, earlier: &Self) -> Self {
        match (self, earlier) {
            (Some(now), Some(before)) => Some(now.since(before)),
            (now, _) => now.clone(),
        }
    }
}

impl<T: Since + Clone> Since for Vec<T> {
    fn since(&self, earlier: &Self) -> Self {
        let increase = |(i, now): (usize, &T)| earlier.get(i).map_or_else(|| now.clone(), |before| now.since(before));
        self.iter().enumerate().map(increase).collect()
    }
}

impl<T: Since + Clone> Since for BTreeMap<String, T> {
    fn since(&self, earlier: &Self) -> Self {
        let increase = |(name, now): (&String, &T)| {
            let increase = earlier.get(name).map_or_else(|| now.clone(), |before| now.since(before));
            (name.clone(), increase)
        };
        self.iter().map(increase).collect()
    }
}
