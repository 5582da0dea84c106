//! [`LeRobotOptions`]: selects the episodes and features of a LeRobot dataset.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// Options for [`LeRobot`](crate::LeRobot): the episodes to read, and the content of each sample.
///
/// ```
/// use warpfeed_sources::LeRobotOptions;
///
/// // At 10 frames per second: the previous and the current state, and 16 actions, of which the
/// // first belongs to the current frame.
/// let options = LeRobotOptions::new()
///     .delta_timestamps("observation.state", [-0.1, 0.0])
///     .delta_indices("action", 0..16);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LeRobotOptions {
    pub(super) episodes: Option<Vec<u64>>,
    pub(super) split: Option<String>,
    pub(super) features: Option<Vec<String>>,
    pub(super) deltas: BTreeMap<String, Deltas>,
    pub(super) tolerance_s: f64,
    /// The first feature whose deltas were set twice, which makes opening the dataset fail.
    pub(super) duplicate_deltas: Option<String>,
}

/// Offsets of a feature's frames from the sample's own frame.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Deltas {
    Seconds(Vec<f64>),
    Frames(Vec<i64>),
}

/// Default tolerance in seconds, the same as in the `lerobot` library.
const TOLERANCE_S: f64 = 1e-4;

impl Default for LeRobotOptions {
    fn default() -> Self {
        LeRobotOptions {
            episodes: None,
            split: None,
            features: None,
            deltas: BTreeMap::new(),
            tolerance_s: TOLERANCE_S,
            duplicate_deltas: None,
        }
    }
}

impl LeRobotOptions {
    /// Creates the default options: all episodes and all features, with one frame per sample.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn of_split(split: Option<String>) -> Self {
        LeRobotOptions { split, ..Self::default() }
    }

    /// Sets the indices of the episodes to read, in any order. Samples keep the order of the
    /// dataset.
    #[must_use]
    pub fn episodes(mut self, episodes: impl IntoIterator<Item = u64>) -> Self {
        self.episodes = Some(episodes.into_iter().collect());
        self
    }

    /// Selects a split from `meta/info.json`, such as `train`. If
    /// [`episodes`](LeRobotOptions::episodes) are also set, the split must contain all of them.
    #[must_use]
    pub fn split(mut self, split: impl Into<String>) -> Self {
        self.split = Some(split.into());
        self
    }

    /// Sets the features that samples contain, such as `action`. The name `task` stands for the
    /// text of the frame's task. A sample has at most 16 fields, including the `<feature>_is_pad`
    /// fields of [`delta_timestamps`](LeRobotOptions::delta_timestamps). A loader reads only the
    /// fields that it needs, so the limit matters only to programs that read or pack whole samples.
    #[must_use]
    pub fn features(mut self, features: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.features = Some(features.into_iter().map(Into::into).collect());
        self
    }

    /// Stacks the values of `feature` at several times, in seconds relative to the sample's frame.
    /// Each time must coincide with a frame, within [`tolerance_s`](LeRobotOptions::tolerance_s).
    ///
    /// Times before the episode repeat its first frame, and times after the episode repeat its last
    /// frame. The `<feature>_is_pad` field is 1 for these times, and 0 for all other times.
    #[must_use]
    pub fn delta_timestamps(self, feature: impl Into<String>, seconds: impl IntoIterator<Item = f64>) -> Self {
        self.insert_deltas(feature.into(), Deltas::Seconds(seconds.into_iter().collect()))
    }

    /// Like [`delta_timestamps`](LeRobotOptions::delta_timestamps), with offsets in frames instead
    /// of seconds.
    #[must_use]
    pub fn delta_indices(self, feature: impl Into<String>, frames: impl IntoIterator<Item = i64>) -> Self {
        self.insert_deltas(feature.into(), Deltas::Frames(frames.into_iter().collect()))
    }

    fn insert_deltas(mut self, feature: String, deltas: Deltas) -> Self {
        if self.deltas.insert(feature.clone(), deltas).is_some() {
            self.duplicate_deltas.get_or_insert(feature);
        }
        self
    }

    /// Sets how far a time may be from the nearest frame, in seconds. The default is 0.0001. The
    /// tolerance applies to [`delta_timestamps`](LeRobotOptions::delta_timestamps), to the
    /// timestamps in the dataset and to the times of video frames. For timestamps, the tolerance
    /// applies to each step between frames: the time between two frames that are n steps apart may
    /// deviate by n times the tolerance.
    #[must_use]
    pub fn tolerance_s(mut self, seconds: f64) -> Self {
        self.tolerance_s = seconds;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.tolerance_s.is_nan() || self.tolerance_s < 0.0 {
            return Err(Error::config(format!("tolerance_s={}: expected 0 or more seconds", self.tolerance_s)));
        }
        match &self.duplicate_deltas {
            Some(feature) => Err(Error::config(format!(
                "the deltas of feature {feature:?} are set more than once: set delta_timestamps or delta_indices once per \
                 feature"
            ))),
            None => Ok(()),
        }
    }
}
