use std::path::Path;

use crate::medium::tree::INDEX;
use crate::options::{DataFormat, with_feature};

pub(crate) const ROW: DataFormat = DataFormat {
    is_folder: |folder| Ok(is_index(Path::new(INDEX), &folder.start(INDEX)?)),
    is_file: is_index,
    ..DataFormat::new(
        "litdata",
        "a folder with the `index.json` of LitData's chunks, or that file",
        &[],
        with_feature!("chunks", "a dataset of LitData's chunks", super::set::open),
    )
};

/// Whether the file at `path`, which begins with `start`, lists chunks.
fn is_index(path: &Path, start: &[u8]) -> bool {
    path.ends_with(INDEX) && memchr::memmem::find(start, b"\"chunks\"").is_some()
}
