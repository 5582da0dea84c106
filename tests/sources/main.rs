//! Tests of the sources: folders, LMDB, tar, tables, annotated datasets, tokens, videos, and formats
//! of other libraries, locally and in object stores.

#[path = "../support/annotated.rs"]
mod annotated;
#[path = "../support/files.rs"]
mod files;
#[cfg(feature = "parquet")]
#[path = "../../sources/tests/support/lists.rs"]
mod lists;
#[path = "../support/objects.rs"]
mod objects;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/require.rs"]
mod require;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/warnings.rs"]
mod warnings;

mod annotated_sets;
mod arrays;
mod arrow;
mod beton;
mod changed_files;
mod classes;
#[cfg(feature = "video")]
mod clips;
mod closing;
mod concat;
mod corrupt;
mod folder_index;
mod folder_masks;
mod format_agreement;
mod formats;
#[cfg(feature = "hdf5")]
mod hdf5;
#[cfg(feature = "parquet")]
mod lerobot;
#[cfg(feature = "parquet")]
mod lerobot_packed;
#[cfg(all(feature = "parquet", feature = "video"))]
mod lerobot_video;
mod litdata;
mod lmdb_interop;
mod lmdb_layouts;
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
mod store_prefetching;
mod stores;
mod tables;
#[cfg(feature = "tables")]
mod tables_in_stores;
mod tar_interop;
mod tar_links;
mod tfrecord;
mod tokens;
#[cfg(all(feature = "parquet", feature = "video"))]
mod video_requests;
