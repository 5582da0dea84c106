//! Sources: folder, LMDB, tar, tables, COCO, YOLO and Pascal VOC.

#[path = "../support/annotated.rs"]
mod annotated;
#[path = "../support/files.rs"]
mod files;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/warnings.rs"]
mod warnings;

mod agree;
mod ahead;
mod annotated_sets;
mod classes;
mod corrupt;
mod folder_index;
mod joined;
mod lmdb_interop;
mod lmdb_readers;
mod lmdb_writer;
mod named_files;
mod replaced;
mod stores;
mod tables;
mod tar_interop;
