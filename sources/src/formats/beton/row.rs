//! The FFCV format's entry in `DATA_FORMATS`.

use crate::options::{DataFormat, with_feature};

pub(crate) const ROW: DataFormat = DataFormat::new(
    "beton",
    "a `.beton` file",
    &["beton"],
    with_feature!("chunks", "an FFCV dataset", super::set::open),
);
