//! Data sets: samples by index.
//!
//! 1. [`Source`]: maps an index to a [`Sample`] of a few named fields. A field is bytes or a typed
//!    [`Value`], without a copy if the medium allows that.
//! 2. [`Folder`]: pictures in class folders.
//! 3. [`Lmdb`]: one LMDB database.
//! 4. [`Tar`]: WebDataset shards, memory-mapped or read.
//! 5. [`Coco`], [`Yolo`], [`Voc`]: pictures with boxes, masks and points.
//! 6. [`Table`]: a CSV, TSV or JSON-lines file: paths of pictures, labels, numbers and text.
//! 7. [`Memory`]: samples in memory.
//! 8. [`Concat`]: several data sets as one.
//! 9. [`Arrow`]: files of the library `datasets`. `Parquet`: with the feature `parquet`, files of
//!    the Hugging Face hub.
//! 10. [`Arrays`]: whole arrays of NumPy, safetensors and PyTorch. [`TfRecord`]: TensorFlow's
//!     records.
//! 11. [`Tokens`]: windows over files of tokens.
//! 12. [`Classes`]: a list of class names that numbers the labels.
//! 13. [`open`]: chooses the source by the content of a path, among [`DATA_FORMATS`].
//! 14. [`Store`]: files that are not on this machine, by URL; [`Reply`] takes what it reads,
//!     [`Keep`] keeps it on this machine, and [`Upload`] writes an object.
//! 15. [`Lookahead`]: the future reads of a loader, for sources that fetch ahead.
//! 16. [`labels`]: the labels of many samples; [`sample_error`]: adds the sample to an error.

// Internal modules: `formats` has the table of formats. `relabel` maps old labels to new ones.
// `retry` reads again after transient errors. `arrow` and `parquet` read the files of the
// library `datasets`, `features` their metadata, and `splits` chooses among them. `mds` reads
// MosaicML's shards, `litdata` LitData's chunks, `beton` FFCV's files, and `recordio` MXNet's.
// `items` finds samples in the files of such data sets. `record` turns rows of typed columns
// into samples, for the formats of other libraries. `ahead` reads from stores ahead of need, and
// `stop` ends such reads. `annotated` lists the fields of an annotated picture. `layout`
// recognises data sets by their files. `tree` lists what lies in a folder or a store, `slashes`
// writes paths alike on every system, and `options` are the options for opening. `bytes` reads
// large files, `pages` loads pages of memory maps, `identity` detects replaced files, `medium`
// keeps files open, `file` reads whole files, and `parallel` opens many of them, with the
// threads of a `pool`. `kept` writes and reads the indexes next to data sets, and `hash` is
// their hash. `pickle`, `protobuf` and `npy` read values of other libraries, and `elements` and
// `pixels` convert arrays of numbers and pixels.

mod ahead;
#[cfg(feature = "annotations")]
mod annotated;
#[cfg(feature = "arrays")]
mod arrays;
mod arrow;
mod at_url;
#[cfg(feature = "chunks")]
mod beton;
mod brought;
mod bytes;
mod classes;
#[cfg(feature = "annotations")]
mod coco;
mod concat;
#[cfg(any(feature = "arrays", feature = "lmdb"))]
mod elements;
mod features;
mod file;
mod folder;
mod formats;
#[cfg(any(feature = "hdf5", feature = "parquet"))]
mod grants;
mod hash;
mod identity;
#[cfg(feature = "chunks")]
mod items;
mod kept;
mod labels;
mod layout;
#[cfg(feature = "chunks")]
mod litdata;
#[cfg(feature = "lmdb")]
mod lmdb;
mod lookahead;
#[cfg(feature = "chunks")]
mod mds;
mod medium;
mod memory;
mod npy;
mod open;
mod options;
mod pages;
mod parallel;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(any(feature = "arrays", feature = "lmdb"))]
mod pickle;
#[cfg(any(feature = "arrays", feature = "chunks", feature = "lmdb"))]
mod pixels;
mod pool;
#[cfg(any(feature = "arrays", feature = "lmdb"))]
mod protobuf;
// Each format uses a part of it.
#[cfg_attr(not(feature = "host"), allow(dead_code, unused_imports))]
mod record;
#[cfg(feature = "chunks")]
mod recordio;
mod relabel;
mod retry;
mod sample;
mod sample_error;
mod slashes;
#[allow(clippy::module_inception)]
mod source;
mod splits;
mod stop;
mod store;
#[cfg(any(feature = "annotations", feature = "tables"))]
mod stored;
#[cfg(feature = "tables")]
mod table;
mod tar;
#[cfg(feature = "arrays")]
mod tfrecord;
mod tokens;
mod tree;
mod value;
#[cfg(feature = "annotations")]
mod voc;
#[cfg(feature = "annotations")]
mod yolo;

#[cfg(feature = "arrays")]
pub use arrays::Arrays;
pub use arrow::Arrow;
pub use classes::Classes;
#[cfg(feature = "annotations")]
pub use coco::Coco;
pub use concat::Concat;
pub(crate) use concat::Join;
pub use file::append_file;
#[cfg(feature = "pack")]
pub(crate) use file::rename;
pub(crate) use file::within;
pub use folder::Folder;
pub use formats::{DATA_FORMATS, DataFormat};
pub use labels::labels;
#[cfg(feature = "lmdb")]
pub use lmdb::{Bare, Lmdb, MsgPack, ValueFormat};
pub use lookahead::{Follow, Lookahead, NextUse, Place};
pub(crate) use medium::attempt;
pub use memory::{Memory, OwnedSample};
pub use open::open;
pub use options::Options;
#[cfg(feature = "parquet")]
pub use parquet::Parquet;
pub use sample::Sample;
pub(crate) use sample::are_one;
pub use sample_error::sample_error;
pub use source::Source;
pub use stop::{Stop, is_stopped};
pub(crate) use stop::{check as check_stop, during};
pub(crate) use store::Stores;
pub use store::{Keep, Location, Object, ReadParts, Reply, Store, Tier, Upload};
#[cfg(feature = "tables")]
pub use table::{Table, TableOptions};
pub use tar::Tar;
#[cfg(feature = "arrays")]
pub use tfrecord::TfRecord;
pub use tokens::{TokenType, Tokens};
pub use value::{Lists, Number, Numbers, Value};
#[cfg(feature = "annotations")]
pub use voc::Voc;
#[cfg(feature = "annotations")]
pub use yolo::Yolo;

#[cfg(feature = "pack")]
pub(crate) use ahead::Remote;
pub(crate) use hash::Hash;
pub(crate) use labels::{Labels, labels_retried, no_sample};
#[cfg(all(feature = "lmdb", feature = "pack"))]
pub(crate) use lmdb::{CLASSES_KEY, lmdb_error};
pub(crate) use npy::{MAX_AXES, Npy, Shape};
pub(crate) use pages::reads_ahead;
pub(crate) use pool::Pool;
pub(crate) use retry::{RETRIES, check_retries, retried};
#[cfg(feature = "pack")]
pub(crate) use tar::{CLASSES_MEMBER, KEY_RECORD, MANIFEST_END, MANIFEST_VERSION, PLAN_END};

#[cfg(all(test, feature = "annotations", feature = "tables"))]
#[path = "../../tests/fuzz/sets.rs"]
mod fuzz;

#[cfg(all(test, feature = "parquet"))]
#[path = "../../tests/fuzz/columns.rs"]
mod fuzz_columns;

#[cfg(test)]
#[path = "../../tests/fuzz/lists.rs"]
mod fuzz_lists;
