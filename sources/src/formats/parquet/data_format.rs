//! The [`DataFormat`] of Parquet datasets.

use crate::options::{DataFormat, with_feature};

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    files: |folder| Ok(folder.files("parquet")?.len()),
    is_file: |_, start| start.starts_with(b"PAR1"),
    has_splits: true,
    ..DataFormat::new(
        "parquet",
        "a `.parquet` file, or a folder that contains such files, directly or in subfolders",
        &["parquet"],
        |location, options| with_feature!("parquet", "a Parquet dataset", location, options => super::Parquet::open_at(location, options)?),
    )
};
