//! WebDataset shards.
//!
//! 1. `read`: [`Tar`], the source.
//! 2. `header`: parser for tar headers and PAX records.
//! 3. `index`: the samples of a shard, built from the headers of its members.
//! 4. `links`: hard and symbolic links within a shard.
//! 5. `sidecar`: the file next to a shard that stores its index.
//! 6. `shards`: expands a path into a list of shards.
//! 7. `manifest`: the file that lists the shards of a set.
//! 8. `stored`: shards in an object store.
//!
//! `row` registers the format.

mod header;
mod index;
mod links;
mod manifest;
mod read;
mod row;
mod shards;
mod sidecar;
mod stored;

pub use header::KEY_RECORD;
pub use index::CLASSES_MEMBER;
pub(crate) use manifest::unmerged_in;
pub use manifest::{MANIFEST_END, PLAN_END, VERSION as MANIFEST_VERSION};
pub use read::Tar;
pub(crate) use row::ROW;
pub(crate) use shards::check_star;

#[cfg(test)]
#[path = "../../../tests/fuzz/tar.rs"]
mod fuzz;
