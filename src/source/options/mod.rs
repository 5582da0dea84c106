//! What the user says about a data set when it is opened.
//!
//! 1. `options`: [`Options`], for all formats.
//! 2. `table`: [`TableOptions`], the meaning of columns; `wanted`: those that all formats with
//!    columns know.

#[allow(clippy::module_inception)]
mod options;
#[cfg(feature = "tables")]
mod table;
mod wanted;

pub use options::Options;
#[cfg(feature = "tables")]
pub use table::TableOptions;
pub(super) use wanted::Wanted;
