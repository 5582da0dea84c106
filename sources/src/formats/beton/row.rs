use crate::options::{DataFormat, with_feature};

pub(crate) const ROW: DataFormat = DataFormat::new(
    "beton",
    "a `.beton` file",
    &["beton"],
    with_feature!("chunks", "a dataset of FFCV", super::set::open),
);
