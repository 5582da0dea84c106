//! The [`DataFormat`] of TFRecord files.

use super::detect::is_records_name;
use crate::error::Result;
use crate::options::{DataFormat, with_feature};
use crate::storage::tree::Tree;

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    is_folder: is_records_folder,
    is_file: |path, _| path.file_name().is_some_and(|name| is_records_name(&name.to_string_lossy())),
    has_splits: true,
    ..DataFormat::new(
        "tfrecord",
        "a TFRecord file of `tf.train.Example`, or a folder of shards such as `train-00000-of-01024`",
        &["tfrecord", "tfrecords", "tfrec"],
        |location, options| {
            with_feature!("arrays", "a TFRecord file", location, options => {
                super::TfRecord::open_at(&location, options)?
            })
        },
    )
};

/// Maximum number of entries of a folder that are inspected. A folder may have millions of entries.
const MAX_INSPECTED: usize = 64;

/// Returns whether the inspected entries include a TFRecord file and no subfolder.
fn is_records_folder(folder: Tree<'_>) -> Result<bool> {
    let mut is_records = false;
    for entry in folder.entries().take(MAX_INSPECTED) {
        let (name, is_folder) = entry?;
        if is_folder {
            return Ok(false);
        }
        is_records |= is_records_name(&name);
    }
    Ok(is_records)
}
