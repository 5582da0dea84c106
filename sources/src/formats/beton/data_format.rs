//! The [`DataFormat`] of FFCV datasets.

use crate::options::{DataFormat, with_feature};

pub(crate) const DATA_FORMAT: DataFormat = DataFormat::new(
    "beton",
    "a `.beton` file",
    &["beton"],
    with_feature!("chunks", "an FFCV dataset", super::open::open),
);
