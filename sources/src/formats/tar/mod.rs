//! WebDataset shards, memory-mapped or read.
//!
//! 1. `read`: [`Tar`], samples from shards.
//! 2. `header`: one tar header and its PAX records.
//! 3. `index`: all headers of a shard, as samples.
//! 4. `links`: hard and symbolic links of a shard.
//! 5. `sidecar`: the index kept next to the shard.
//! 6. `shards`: expands a path into the list of shards.
//! 7. `manifest`: the list of a set's shards.
//! 8. `stored`: shards in a store.
//!
//! `row`: its row in the table of formats.

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
