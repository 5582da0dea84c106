//! The [`Source`] and [`Store`] traits, and sources that do not read files.
//!
//! 1. [`Source`]: maps an index to a [`Sample`]. Each field of a sample contains a [`Value`].
//! 2. [`Store`]: reads objects by URL.
//! 3. [`Lookahead`]: the upcoming reads of a loader. [`Position`]: the position of a sample in an
//!    epoch.
//! 4. [`Memory`]: samples in memory. [`Concat`]: several sources, one after the other. [`Zip`]:
//!    several sources with the same samples. [`Classes`]: a class list that determines labels.
//!    `relabel`: maps old labels to new ones.
//! 5. `forward`: a macro that delegates methods to a wrapped source, store or file.
//! 6. [`Frames`]: several encoded images in one field of a sample.
//! 7. [`labels`]: reads the labels of many samples. [`sample_error`]: adds the sample to the
//!    location of an error.

pub(super) mod classes;
pub(super) mod concat;
pub(super) mod forward;
pub(super) mod frames;
pub(super) mod labels;
pub(super) mod lookahead;
pub(super) mod memory;
pub(super) mod position;
pub(super) mod relabel;
pub(super) mod sample;
pub(super) mod sample_error;
#[allow(clippy::module_inception)]
pub(super) mod source;
pub(super) mod store;
pub(super) mod value;
pub(super) mod zip;

pub use classes::Classes;
pub use concat::Concat;
pub use concat::Join;
#[cfg(feature = "parquet")]
pub(crate) use concat::Prefetchers;
pub use frames::Frames;
#[cfg(feature = "video")]
pub(crate) use frames::{Choices, drawn_choice};
pub use labels::labels;
pub use labels::{Labels, labels_retried, no_sample};
pub use lookahead::{BatchIndex, Lookahead, NextUse, Prefetcher};
pub use memory::{Memory, OwnedSample};
pub use position::Position;
pub use sample::Sample;
pub use sample::are_one;
pub use sample_error::sample_error;
pub use source::{Source, SplitEpisodes, VideoInfo};
pub use store::Stores;
pub use store::{Location, Object, ObjectCache, ReadCompletion, ReadParts, Store, Tier, Upload};
pub use value::{Lists, Number, Numbers, Value};
pub use zip::Zip;
