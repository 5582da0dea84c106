//! The [`DataFormat`] of RecordIO datasets.

use crate::options::{DataFormat, with_feature};

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    is_file: |_, start| start.starts_with(&[0x0a, 0x23, 0xd7, 0xce]),
    ..DataFormat::new(
        "recordio",
        "a file that begins with RecordIO's magic number, such as `train.rec`",
        &["rec"],
        with_feature!("chunks", "a RecordIO file", super::open::open),
    )
};
