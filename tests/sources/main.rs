//! Tests of the sources: folders, LMDB, tar, tables, annotated datasets, and formats of other
//! libraries, on this machine and in object stores.

#[path = "../support/annotated.rs"]
mod annotated;
#[path = "../support/files.rs"]
mod files;
#[cfg(feature = "parquet")]
#[path = "../../sources/tests/support/lists.rs"]
mod lists;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/require.rs"]
mod require;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/warnings.rs"]
mod warnings;

mod agree;
mod ahead;
mod annotated_sets;
mod arrays;
mod arrow;
mod beton;
mod classes;
#[cfg(feature = "video")]
mod clips;
mod closing;
mod corrupt;
mod folder_index;
mod folder_masks;
mod formats;
#[cfg(feature = "hdf5")]
mod hdf5;
mod joined;
#[cfg(feature = "parquet")]
mod lerobot;
#[cfg(feature = "parquet")]
mod lerobot_packed;
#[cfg(all(feature = "parquet", feature = "video"))]
mod lerobot_video;
mod litdata;
mod lmdb_interop;
mod lmdb_readers;
mod lmdb_writer;
mod mds;
mod named_files;
mod network;
mod packed_tokens;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
mod parquet_lists;
mod ranges;
mod recordio;
mod records;
mod replaced;
#[cfg(feature = "tables")]
mod stored_tables;
mod stores;
mod tables;
mod tar_interop;
mod tar_links;
mod tokens;
mod wild;
