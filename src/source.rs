//! Datasets, which provide samples by index.
//!
//! This module re-exports the [`warpfeed_sources`] crate, which you can also use without
//! `warpfeed`. The documentation of that crate lists the types by purpose.

#[cfg(feature = "arrays")]
pub use warpfeed_sources::{Arrays, TfRecord};
pub use warpfeed_sources::{Arrow, DATA_FORMATS, Folder, PackedTokens, Packing, Tar, TokenFile, TokenType};
pub use warpfeed_sources::{BatchIndex, CancelToken, DataFormat, Dataset, Options, append_file, is_stopped, open};
pub use warpfeed_sources::{
    Classes, Concat, Frames, Lists, Lookahead, Memory, NextUse, Number, Numbers, OwnedSample, Prefetcher,
};
#[cfg(feature = "video")]
pub use warpfeed_sources::{Clips, ClipsOptions};
#[cfg(feature = "annotations")]
pub use warpfeed_sources::{Coco, Voc, Yolo};
#[cfg(feature = "parquet")]
pub use warpfeed_sources::{FeatureStats, LeRobot, LeRobotOptions, Parquet};
#[cfg(feature = "lmdb")]
pub use warpfeed_sources::{Lmdb, MsgPack, RawValues, ValueFormat};
pub use warpfeed_sources::{Location, Object, ObjectCache, ReadCompletion, ReadParts, Store, Tier, Upload};
pub use warpfeed_sources::{Sample, Source, SplitEpisodes, Value, VideoInfo, Zip, labels, sample_error};
#[cfg(feature = "tables")]
pub use warpfeed_sources::{Table, TableOptions};

#[cfg(all(feature = "lmdb", feature = "pack"))]
pub(crate) use warpfeed_sources::internal::{CLASSES_KEY, lmdb_error};
#[cfg(feature = "pack")]
pub(crate) use warpfeed_sources::internal::{
    CLASSES_MEMBER, IndexBuilder, KEY_RECORD, MANIFEST_SUFFIX, MANIFEST_VERSION, PLAN_SUFFIX,
};
pub(crate) use warpfeed_sources::internal::{Hash, Pool, RETRIES, check_retries, mark_reader_thread, retried, within};
pub(crate) use warpfeed_sources::internal::{
    Join, LabelReader, Stores, are_same_field, labels_retried, out_of_range_error,
};
pub(crate) use warpfeed_sources::internal::{MAX_AXES, Npy, Shape};
#[cfg(feature = "pack")]
pub(crate) use warpfeed_sources::internal::{Remote, rename, run_with_token, temp_files};
