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
//!
//! The crate [`warpfeed_sources`] has them, which can be used without this one.

#[cfg(feature = "parquet")]
pub use warpfeed_sources::Parquet;
#[cfg(feature = "arrays")]
pub use warpfeed_sources::{Arrays, TfRecord};
pub use warpfeed_sources::{Arrow, DATA_FORMATS, Folder, Tar, TokenType, Tokens};
#[cfg(feature = "lmdb")]
pub use warpfeed_sources::{Bare, Lmdb, MsgPack, ValueFormat};
pub use warpfeed_sources::{Classes, Concat, Follow, Lists, Lookahead, Memory, NextUse, Number, Numbers, OwnedSample};
#[cfg(feature = "annotations")]
pub use warpfeed_sources::{Coco, Voc, Yolo};
pub use warpfeed_sources::{DataFormat, DataSet, Options, Place, Stop, append_file, is_stopped, open};
pub use warpfeed_sources::{Keep, Location, Object, ReadParts, Reply, Store, Tier, Upload};
pub use warpfeed_sources::{Sample, Source, Value, labels, sample_error};
#[cfg(feature = "tables")]
pub use warpfeed_sources::{Table, TableOptions};

#[cfg(all(feature = "lmdb", feature = "pack"))]
pub(crate) use warpfeed_sources::internal::{CLASSES_KEY, lmdb_error};
#[cfg(feature = "pack")]
pub(crate) use warpfeed_sources::internal::{CLASSES_MEMBER, KEY_RECORD, MANIFEST_END, MANIFEST_VERSION, PLAN_END};
pub(crate) use warpfeed_sources::internal::{Hash, Pool, RETRIES, check_retries, reads_ahead, retried, within};
pub(crate) use warpfeed_sources::internal::{Join, Labels, Stores, are_one, labels_retried, no_sample};
pub(crate) use warpfeed_sources::internal::{MAX_AXES, Npy, Shape};
#[cfg(feature = "pack")]
pub(crate) use warpfeed_sources::internal::{Remote, attempt, during, rename};
