//! The [`DataFormat`] of LMDB datasets.

use super::detect::is_lmdb;
use crate::error::Error;
use crate::options::{DataFormat, with_feature};
use crate::storage::download::Companions;

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    is_folder: |folder| folder.has_file("data.mdb"),
    is_file: |_, start| is_lmdb(start),
    has_splits: true,
    companions: Some(Companions {
        // Do not download the lock file, because opening the database creates a new one.
        is_excluded: |url| url.ends_with("/lock.mdb") || url.ends_with("-lock"),
        ..Companions::NONE
    }),
    ..DataFormat::new(
        "lmdb",
        "a folder with `data.mdb`, or a file with LMDB's magic number at byte 16",
        &["lmdb", "mdb"],
        |location, options| {
            if !options.mapped {
                return Err(Error::config(
                    "the LMDB library can only read memory-mapped databases: open the database mapped, or pack it as \
                     tar shards (warpfeed pack --from x.lmdb --to x.tar)",
                )
                .at_path(location.path));
            }
            with_feature!("lmdb", "an LMDB", location, options => super::source::open(&location, options)?)
        },
    )
};
