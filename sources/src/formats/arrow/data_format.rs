//! The [`DataFormat`] of Arrow datasets.

use std::sync::Arc;

use super::{Arrow, MAGIC};
use crate::options::DataFormat;
use crate::storage::download::Companions;

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    is_folder: Arrow::is_saved,
    files: |folder| folder.count_files("arrow"),
    is_file: |_, start| start.starts_with(MAGIC),
    has_splits: true,
    companions: Some(Companions::NONE),
    ..DataFormat::new(
        "arrow",
        "a folder written by `datasets.save_to_disk`, an `.arrow` file in the stream or file format, or a folder of \
         such files",
        &["arrow"],
        |location, options| Ok(Arc::new(Arrow::open_at(&location, options)?)),
    )
};
