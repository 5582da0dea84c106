use std::path::Path;

use crate::model::Object;
use crate::options::{AtUrl, DataFormat, Opened, Options, with_feature};

pub(crate) const ROW: DataFormat = DataFormat {
    is_file: |_, start| start.starts_with(b"PAR1"),
    at_url: AtUrl::Other(|url, options| open_at(url, None, options)),
    ..DataFormat::new(
        "parquet",
        "a `.parquet` file, or a folder of them, also in its folder `data`",
        &["parquet"],
        |path, options| open(path, None, options),
    )
};

/// Opens the files of a split, or of the only one.
pub(crate) fn open(path: &Path, split: Option<&str>, options: &Options) -> Opened {
    with_feature!("parquet", "a Parquet data set", path, split, options => super::Parquet::with(path, split, options)?)
}

/// Opens the Parquet file at `url`, or those among `listing`, all objects below it, that belong to
/// the split.
pub(crate) fn open_at(url: &str, listing: Option<(Vec<Object>, Option<&str>)>, options: &Options) -> Opened {
    with_feature!("parquet", "a Parquet data set", url, listing, options => {
        super::Parquet::in_store(url, options.stores.of(url)?, listing, options)?
    })
}
