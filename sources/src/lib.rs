//! Opens datasets and reads their samples by index.
//!
//! [`open`] detects which of the [`DATA_FORMATS`] a path has, and opens the dataset. Types such as
//! [`Folder`] and [`Tar`] open a single format. The result is a [`Source`], which maps an index to
//! a [`Sample`] with a few named fields. A field contains bytes or a typed [`Value`], and is
//! borrowed from a memory map where possible. [`Concat`] and [`Zip`] combine datasets, and a
//! [`Store`] reads objects by URL, for example from S3.
//!
//! ```
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
//! let source = warpfeed_sources::open("datasets/mini")?;
//! let mut scratch = Vec::new(); // reused from sample to sample
//! let sample = source.read(0, &mut scratch)?;
//! println!("{} of {}: {} bytes", sample.key(), source.len(), sample.fields()[0].1.encoded("jpg").len());
//! # Ok::<(), warpfeed_sources::Error>(())
//! ```

// Without default features, some helpers are unused.
#![cfg_attr(
    not(all(feature = "annotations", feature = "arrays", feature = "chunks", feature = "lmdb", feature = "tables")),
    allow(dead_code, unused_imports)
)]

// The modules in dependency order: `machine` accesses local files; `model` defines sources and
// samples; `storage` reads local files and objects in stores; `options` contains the options of
// `open`; `values` contains code that several formats share; `formats` has a module per format;
// `open` detects formats. All of them use `error`, and some use `format` and `stats`.
mod error;
pub mod format;
mod formats;
mod machine;
mod model;
mod open;
mod options;
mod stats;
mod storage;
mod values;

pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "tables")]
pub use formats::Table;
#[cfg(feature = "arrays")]
pub use formats::{Arrays, TfRecord};
pub use formats::{Arrow, DATA_FORMATS, Folder, PackedTokens, Packing, Tar, TokenFile, TokenType};
#[cfg(feature = "video")]
pub use formats::{Clips, ClipsOptions};
#[cfg(feature = "annotations")]
pub use formats::{Coco, Voc, Yolo};
#[cfg(feature = "parquet")]
pub use formats::{FeatureStats, LeRobot, LeRobotOptions, Parquet};
#[cfg(feature = "lmdb")]
pub use formats::{Lmdb, MsgPack, RawValues, ValueFormat};
pub use machine::{CancelToken, append_file, is_stopped};
pub use model::{
    BatchIndex, Classes, Concat, Frames, Lists, Lookahead, Memory, NextUse, Number, Numbers, OwnedSample, Prefetcher,
};
pub use model::{Location, Object, ObjectCache, Position, ReadCompletion, ReadParts, Store, Tier, Upload};
pub use model::{Sample, Source, SplitEpisodes, Value, VideoInfo, Zip, labels, sample_error};
pub use open::open;
#[cfg(feature = "tables")]
pub use options::TableOptions;
pub use options::{DataFormat, Dataset, Options};
pub use stats::{NetworkStats, StageStats};

/// Internal interface for the `warpfeed` and `warpfeed-stores` crates. It may change in any
/// release.
#[doc(hidden)]
pub mod internal {
    pub use crate::error::{append, counted, guarded_with, panicked, reserve, resize};
    #[cfg(feature = "lmdb")]
    pub use crate::formats::{CLASSES_KEY, lmdb_error};
    pub use crate::formats::{
        CLASSES_MEMBER, IndexBuilder, KEY_RECORD, MANIFEST_SUFFIX, MANIFEST_VERSION, PLAN_SUFFIX,
    };
    pub use crate::machine::{
        Hash, Pool, RETRIES, check_retries, mark_reader_thread, rename, retried, run_with_token, temp_files, within,
    };
    pub use crate::model::{Join, LabelReader, Stores, are_same_field, labels_retried, out_of_range_error};
    pub use crate::stats::{Count, Since, Tally, ratio};
    pub use crate::storage::Remote;
    pub use crate::values::{MAX_AXES, Npy, Shape};
}

#[cfg(test)]
#[allow(dead_code)] // other crates' fuzz tests use the remaining functions
#[path = "../tests/fuzz/mod.rs"]
mod fuzz;
#[cfg(all(test, feature = "parquet"))]
#[path = "../tests/fuzz/columns.rs"]
mod fuzz_columns;
#[cfg(test)]
#[path = "../tests/fuzz/lists.rs"]
mod fuzz_lists;
#[cfg(all(test, feature = "annotations", feature = "tables"))]
#[path = "../tests/fuzz/sets.rs"]
mod fuzz_sets;

#[cfg(all(test, feature = "parquet"))]
#[path = "../tests/support/lists.rs"]
mod lists;

#[cfg(test)]
#[path = "../../tests/support/warnings.rs"]
mod warnings;
