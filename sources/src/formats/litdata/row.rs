use std::path::Path;

use crate::medium::layout::{INDEX, is_litdata};
use crate::options::{DataFormat, with_feature};

pub(crate) const ROW: DataFormat = DataFormat {
    is_folder: |folder| is_litdata(Path::new(INDEX), &folder.start(INDEX)),
    is_file: is_litdata,
    ..DataFormat::new(
        "litdata",
        "a folder with the `index.json` of LitData's chunks, or that file",
        &[],
        with_feature!("chunks", "a data set of LitData's chunks", super::set::open),
    )
};
