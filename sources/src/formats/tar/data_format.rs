//! The [`DataFormat`] of tar shards.

use std::sync::Arc;

use super::Tar;
use super::header::is_tar;
use super::manifest::{find_for_target, is_manifest};
use super::shards::has_braces;
use crate::options::DataFormat;

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    files: |folder| folder.count_files("tar"),
    is_file: |path, start| is_tar(start) || is_manifest(path, start),
    is_pattern: |path| Ok(has_braces(path) || find_for_target(path)?.is_some()),
    ..DataFormat::new(
        "tar",
        "a file that begins with a tar header, a folder of `.tar` files, a pattern such as `train-{000..099}.tar`, or \
         a manifest `train.manifest.json`",
        &["tar", "tgz", "gz"],
        |location, _| Ok(Arc::new(Tar::open_at(&location)?)),
    )
};
