//! Reads CSV, TSV and JSON Lines tables. Each row is a sample.
//!
//! 1. `text`: reads the text of a file, and computes line numbers.
//! 2. `cells`: the cells of a row. `csv` and `json` parse rows, `syntax` dispatches to one of them,
//!    and `scan` parses all rows once.
//! 3. `columns`: decides how samples use each column.
//! 4. `page`: collects the bytes of a sample in a buffer.
//! 5. `extension`: finds file extensions that paths omit.
//! 6. `table`: [`Table`], the source. `learn` determines the labels, and `gather` assembles the
//!    sample of a row.
//!
//! `row` contains the format's entry in `DATA_FORMATS`.

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
