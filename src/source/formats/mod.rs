//! The formats of data sets, a folder each.
//!
//! `arrow` and `parquet` read the files of the library `datasets`, `mds` MosaicML's shards,
//! `litdata` LitData's chunks, `beton` FFCV's files, and `recordio` MXNet's. [`Tokens`] has no name
//! in [`DATA_FORMATS`](super::DATA_FORMATS), because its files are only numbers.

#[cfg(feature = "arrays")]
pub(super) mod arrays;
pub(super) mod arrow;
#[cfg(feature = "chunks")]
pub(super) mod beton;
#[cfg(feature = "annotations")]
pub(super) mod coco;
pub(super) mod folder;
#[cfg(feature = "chunks")]
pub(super) mod litdata;
#[cfg(feature = "lmdb")]
pub(super) mod lmdb;
#[cfg(feature = "chunks")]
pub(super) mod mds;
#[cfg(feature = "parquet")]
pub(super) mod parquet;
#[cfg(feature = "chunks")]
pub(super) mod recordio;
#[cfg(feature = "tables")]
pub(super) mod table;
pub(super) mod tar;
#[cfg(feature = "arrays")]
pub(super) mod tfrecord;
pub(super) mod tokens;
#[cfg(feature = "annotations")]
pub(super) mod voc;
#[cfg(feature = "annotations")]
pub(super) mod yolo;

#[cfg(feature = "arrays")]
pub use arrays::Arrays;
pub use arrow::Arrow;
#[cfg(feature = "annotations")]
pub use coco::Coco;
pub use folder::Folder;
#[cfg(feature = "lmdb")]
pub use lmdb::{Bare, Lmdb, MsgPack, ValueFormat};
#[cfg(all(feature = "lmdb", feature = "pack"))]
pub(crate) use lmdb::{CLASSES_KEY, lmdb_error};
#[cfg(feature = "parquet")]
pub use parquet::Parquet;
#[cfg(feature = "tables")]
pub use table::Table;
pub use tar::Tar;
#[cfg(feature = "pack")]
pub(crate) use tar::{CLASSES_MEMBER, KEY_RECORD, MANIFEST_END, MANIFEST_VERSION, PLAN_END};
#[cfg(feature = "arrays")]
pub use tfrecord::TfRecord;
pub use tokens::{TokenType, Tokens};
#[cfg(feature = "annotations")]
pub use voc::Voc;
#[cfg(feature = "annotations")]
pub use yolo::Yolo;
