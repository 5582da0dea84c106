//! The [`Source`] and [`Store`] traits, and sources that do not read files.

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
pub use labels::{LabelReader, labels_retried, out_of_range_error};
pub use lookahead::{BatchIndex, Lookahead, NextUse, Prefetcher};
pub use memory::{Memory, OwnedSample};
pub use position::Position;
pub use sample::Sample;
pub use sample::are_same_field;
pub use sample_error::sample_error;
pub use source::{Source, SplitEpisodes, VideoInfo};
pub use store::Stores;
pub use store::{Location, Object, ObjectCache, ReadCompletion, ReadParts, Store, Tier, Upload};
pub use value::{Lists, Number, Numbers, Value};
pub use zip::Zip;
