//! Data sets: samples by index.
//!
//! The crate [`warpfeed_sources`] has them, and lists them by purpose. It can be used without this one.

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
