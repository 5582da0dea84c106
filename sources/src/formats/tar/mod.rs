//! Reads WebDataset shards.
//!
//! 1. `source`: [`Tar`], which implements `Source`.
//! 2. `header`: parses tar headers and PAX records.
//! 3. `index`: builds the index of a shard from the headers of its members.
//! 4. `links`: resolves hard and symbolic links within a shard.
//! 5. `sidecar`: stores the index of a shard in a file next to it.
//! 6. `shards`: expands a path into a list of shards.
//! 7. `manifest`: reads `NAME.manifest.json`, which lists the shards of a set.
//! 8. `remote`: opens and reads shards in an object store.
//!
//! `data_format` registers the format.

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
pub use index::CLASSES_MEMBER;
pub(crate) use manifest::ensure_merged;
pub use manifest::{MANIFEST_SUFFIX, PLAN_SUFFIX, VERSION as MANIFEST_VERSION};
pub(crate) use shards::check_star;
pub use source::Tar;

#[cfg(test)]
#[path = "../../../tests/fuzz/tar.rs"]
mod fuzz;
