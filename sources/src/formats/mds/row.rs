use std::path::Path;

use crate::medium::layout::{INDEX, is_mds};
use crate::options::{DataFormat, with_feature};

pub(crate) const ROW: DataFormat = DataFormat {
    is_folder: |folder| is_mds(Path::new(INDEX), &folder.start(INDEX)),
    is_file: is_mds,
    ..DataFormat::new(
        "mds",
        "a folder with the `index.json` of MosaicML's shards, or that file",
        &[],
        with_feature!("chunks", "a data set of MDS shards", super::set::open),
    )
};
