//! What the user says about a dataset when it is opened.
//!
//! 1. `options`: [`Options`], for all formats.
//! 2. `dataset`: [`Dataset`], a path or an open source.
//! 3. `format`: [`DataFormat`], one row of the table of formats.
//! 4. `table`: [`TableOptions`], the meaning of columns; `column_choice`: those that all formats with
//!    columns know.

mod column_choice;
mod dataset;
mod format;
#[allow(clippy::module_inception)]
mod options;
#[cfg(feature = "tables")]
mod table;

pub(super) use column_choice::Wanted;
pub use dataset::Dataset;
pub use format::DataFormat;
#[allow(unused_imports)] // with all features, nothing is missing
pub(super) use format::missing;
pub(super) use format::{Open, Opened, with_feature};
pub use options::Options;
#[cfg(feature = "tables")]
pub use table::TableOptions;
