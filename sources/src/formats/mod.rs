//! Readers for dataset formats.
//!
//! Most modules are named after their format. `arrays` reads NumPy, safetensors, PyTorch and HDF5
//! files. `arrow` and `parquet` also read datasets written by the Hugging Face library `datasets`,
//! `mds` reads MosaicML shards, `litdata` reads LitData chunks, `beton` reads FFCV files, and
//! `recordio` reads MXNet files. [`TokenFile`] and [`PackedTokens`] are not listed in
//! [`DATA_FORMATS`]: opening them requires parameters, such as the window length, that a path does
//! not determine.

pub(super) mod arrays;
pub(super) mod arrow;
pub(super) mod beton;
pub(super) mod clips;
pub(super) mod coco;
pub(super) mod folder;
pub(super) mod lerobot;
pub(super) mod litdata;
pub(super) mod lmdb;
pub(super) mod mds;
pub(super) mod packed_tokens;
pub(super) mod parquet;
pub(super) mod recordio;
pub(super) mod table;
pub(super) mod tar;
pub(super) mod tfrecord;
pub(super) mod tokens;
pub(super) mod voc;
pub(super) mod yolo;

#[cfg(feature = "arrays")]
pub use arrays::Arrays;
pub use arrow::Arrow;
#[cfg(feature = "video")]
pub use clips::{Clips, ClipsOptions};
#[cfg(feature = "annotations")]
pub use coco::Coco;
pub use folder::Folder;
#[cfg(feature = "parquet")]
pub use lerobot::{FeatureStats, LeRobot, LeRobotOptions};
#[cfg(feature = "lmdb")]
pub use lmdb::{CLASSES_KEY, lmdb_error};
#[cfg(feature = "lmdb")]
pub use lmdb::{Lmdb, MsgPack, RawValues, ValueFormat};
pub use packed_tokens::{PackedTokens, Packing};
#[cfg(feature = "parquet")]
pub use parquet::Parquet;
#[cfg(feature = "tables")]
pub use table::Table;
pub use tar::Tar;
pub use tar::{CLASSES_MEMBER, IndexBuilder, KEY_RECORD, MANIFEST_SUFFIX, MANIFEST_VERSION, PLAN_SUFFIX};
#[cfg(feature = "arrays")]
pub use tfrecord::TfRecord;
pub use tokens::{TokenFile, TokenType};
#[cfg(feature = "annotations")]
pub use voc::Voc;
#[cfg(feature = "annotations")]
pub use yolo::Yolo;

use crate::options::DataFormat;

/// The formats that can be detected, in the order in which they are tried.
pub const DATA_FORMATS: &[DataFormat] = &[
    lmdb::DATA_FORMAT,
    tar::DATA_FORMAT,
    mds::DATA_FORMAT,
    litdata::DATA_FORMAT,
    arrow::DATA_FORMAT,
    parquet::DATA_FORMAT,
    lerobot::DATA_FORMAT,
    beton::DATA_FORMAT,
    recordio::DATA_FORMAT,
    arrays::NPY,
    arrays::NPZ,
    arrays::SAFETENSORS,
    arrays::TORCH,
    arrays::HDF5,
    tfrecord::DATA_FORMAT,
    coco::DATA_FORMAT,
    yolo::DATA_FORMAT,
    voc::DATA_FORMAT,
    table::DATA_FORMAT,
    clips::DATA_FORMAT,
    folder::DATA_FORMAT,
];
