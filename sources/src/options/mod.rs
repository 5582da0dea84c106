//! What the user says about a data set when it is opened.
//!
//! 1. `options`: [`Options`], for all formats.
//! 2. `data_set`: [`DataSet`], a path or an open source.
//! 3. `format`: [`DataFormat`], one row of the table of formats.
//! 4. `table`: [`TableOptions`], the meaning of columns; `wanted`: those that all formats with
//!    columns know.

mod data_set;
mod format;
#[allow(clippy::module_inception)]
mod options;
#[cfg(feature = "tables")]
mod table;
mod wanted;

pub use data_set::DataSet;
pub use format::DataFormat;
#[allow(unused_imports)] // with all features, nothing is missing
pub(super) use format::missing;
pub(super) use format::{Open, Opened, with_feature};
pub use options::Options;
#[cfg(feature = "tables")]
pub use table::TableOptions;
pub(super) use wanted::Wanted;
