//! Samples by index: what a source is, and sources that are made of others.
//!
//! 1. [`Source`]: maps an index to a [`Sample`], whose fields are bytes or a [`Value`].
//! 2. [`Store`]: files that are not on this machine.
//! 3. [`Lookahead`]: the future reads of a loader; [`Position`]: where an epoch has a sample.
//! 4. [`Memory`], [`Concat`], [`Classes`]: samples in memory, several sources as one, and a list
//!    that numbers labels; `relabel` maps old labels to new ones.
//! 5. `forward`: passes methods on to another source, store or file.
//! 6. [`labels`]: the labels of many samples; [`sample_error`]: adds the sample to an error.

pub(super) mod classes;
pub(super) mod concat;
pub(super) mod forward;
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

pub use classes::Classes;
pub use concat::Concat;
pub use concat::Join;
pub use labels::labels;
pub use labels::{Labels, labels_retried, no_sample};
pub use lookahead::{BatchIndex, Lookahead, NextUse, Prefetcher};
pub use memory::{Memory, OwnedSample};
pub use position::Position;
pub use sample::Sample;
pub use sample::are_one;
pub use sample_error::sample_error;
pub use source::Source;
pub use store::Stores;
pub use store::{Location, Object, ObjectCache, ReadCompletion, ReadParts, Store, Tier, Upload};
pub use value::{Lists, Number, Numbers, Value};
