//! The [`DataFormat`] of MDS datasets.

use std::path::Path;

use crate::options::{DataFormat, with_feature};
use crate::storage::tree::INDEX_FILE;

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    is_folder: |folder| Ok(is_index(Path::new(INDEX_FILE), &folder.first_bytes(INDEX_FILE)?)),
    is_file: is_index,
    ..DataFormat::new(
        "mds",
        "a folder of MosaicML's shards with an `index.json`, or the `index.json` itself",
        &[],
        with_feature!("chunks", "a dataset of MDS shards", super::open::open),
    )
};

fn is_index(path: &Path, start: &[u8]) -> bool {
    path.ends_with(INDEX_FILE) && memchr::memmem::find(start, b"\"shards\"").is_some()
}
