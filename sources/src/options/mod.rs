//! Options for opening a dataset.
//!
//! 1. `options`: [`Options`], for all formats.
//! 2. `dataset`: [`Dataset`], a path or an open source.
//! 3. `format`: [`DataFormat`], a dataset format.
//! 4. `table`: [`TableOptions`], which describe the columns of a table. `column_choice`: the table
//!    options that apply to every format with columns.

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
