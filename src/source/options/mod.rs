//! What the user says about a data set when it is opened.
//!
//! 1. `options`: [`Options`], for all formats.
//! 2. `format`: [`DataFormat`], one row of the table of formats.
//! 3. `table`: [`TableOptions`], the meaning of columns; `wanted`: those that all formats with
//!    columns know.

mod format;
#[allow(clippy::module_inception)]
mod options;
#[cfg(feature = "tables")]
mod table;
mod wanted;

pub use format::DataFormat;
#[cfg(not(all(feature = "host", feature = "hdf5", feature = "parquet")))]
pub(super) use format::missing;
pub(super) use format::{Open, Opened, with_feature};
pub use options::Options;
#[cfg(feature = "tables")]
pub use table::TableOptions;
pub(super) use wanted::Wanted;
