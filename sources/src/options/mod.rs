//! Options for opening a dataset.

mod column_choice;
mod dataset;
mod format;
#[allow(clippy::module_inception)]
mod options;
#[cfg(feature = "tables")]
mod table;

pub(super) use column_choice::ColumnChoice;
pub use dataset::Dataset;
pub use format::DataFormat;
#[allow(unused_imports)] // unused if all features are enabled
pub(super) use format::missing;
pub(super) use format::{Open, Opened, with_feature};
pub use options::Options;
#[cfg(feature = "tables")]
pub use table::TableOptions;
