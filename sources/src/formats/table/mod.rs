//! Tables with one sample per row.
//!
//! 1. `text`: the text of a file, and line numbers.
//! 2. `cells`: the cells of a row. `csv` and `json` parse rows, `syntax` dispatches to one of them,
//!    and `scan` makes a pass over all rows.
//! 3. `columns`: decides how each column is used.
//! 4. `page`: a buffer for the bytes of a sample.
//! 5. `extension`: finds file extensions that paths omit.
//! 6. `table`: [`Table`], the source. `learn` determines the labels, and `gather` assembles the
//!    sample of a row.
//!
//! `row` registers the format.

#[cfg(feature = "tables")]
mod cells;
#[cfg(feature = "tables")]
mod columns;
#[cfg(feature = "tables")]
mod csv;
#[cfg(feature = "tables")]
mod extension;
#[cfg(feature = "tables")]
mod gather;
#[cfg(feature = "tables")]
mod json;
#[cfg(feature = "tables")]
mod learn;
#[cfg(feature = "tables")]
mod page;
mod row;
#[cfg(feature = "tables")]
mod scan;
#[cfg(feature = "tables")]
mod syntax;
#[cfg(feature = "tables")]
#[allow(clippy::module_inception)]
mod table;
#[cfg(feature = "tables")]
mod text;

pub(crate) use row::ROW;
#[cfg(feature = "tables")]
pub use table::Table;
