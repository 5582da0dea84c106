//! Reads WebDataset shards.

mod data_format;
mod header;
mod index;
mod links;
mod manifest;
mod remote;
mod shards;
mod sidecar;
mod source;

pub(crate) use data_format::DATA_FORMAT;
pub use header::KEY_RECORD;
pub use index::{CLASSES_MEMBER, IndexBuilder};
pub(crate) use manifest::ensure_merged;
pub use manifest::{MANIFEST_SUFFIX, PLAN_SUFFIX, VERSION as MANIFEST_VERSION};
pub(crate) use shards::check_star;
pub use source::Tar;

#[cfg(test)]
#[path = "../../../tests/fuzz/tar.rs"]
mod fuzz;
