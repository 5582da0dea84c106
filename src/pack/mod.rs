//! Packs the samples of a source into files that are fast to read.
//!
//! A dataset file with its final name is always complete. In a folder, the name of an incomplete
//! file, or of the folder of an incomplete LMDB database, ends in `.partial`. In a store, an object
//! appears when its upload is complete.

mod array;
mod bad_images;
mod destination;
mod folder_destination;
mod frames;
mod jpeg;
#[cfg(feature = "lmdb")]
mod lmdb;
mod manifests;
mod member;
mod merge;
mod names;
mod open;
mod options;
mod overview;
mod packer;
mod pipeline;
mod plan;
mod prepare;
mod recode;
mod renumber;
mod report;
mod shard;
mod store_destination;
mod tar;
mod writer;

pub use array::part_from_env;
pub use bad_images::ImageIssue;
pub use jpeg::repack_jpeg;
#[cfg(feature = "lmdb")]
pub use lmdb::LmdbWriter;
pub use merge::{Merge, Merged};
pub use options::Pack;
pub use overview::Overview;
pub use recode::{RawSize, Recode};
pub use report::{Progress, Psnr, Report};
pub use tar::TarWriter;
pub use writer::{DatasetWriter, WriteOptions, Written};
