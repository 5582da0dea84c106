//! Tables: one row per sample.
//!
//! 1. `text`: the file's text, and the numbers of its lines.
//! 2. `cells`: the cells of a row. `csv` and `json` parse them: comma- and tab-separated values,
//!    and JSON lines. `syntax`: either of the two. `scan`: one pass over all rows.
//! 3. `columns`: the use of each column in a sample.
//! 4. `page`: the bytes of a sample while they are gathered.
//! 5. `extension`: extensions of paths.
//! 6. `table`: [`Table`], the source; `learn`: its labels; `gather`: the sample of a row.
//!
//! `row`: its row in the table of formats.

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
