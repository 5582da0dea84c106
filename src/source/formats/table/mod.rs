//! Tables: one row per sample.
//!
//! 1. `text`: the file's text, and the numbers of its lines.
//! 2. `cells`: the cells of a row. `csv` and `json` parse them: comma- and tab-separated values,
//!    and JSON lines. `syntax`: either of the two. `scan`: one pass over all rows.
//! 3. `columns`: the use of each column in a sample.
//! 4. `page`: the bytes of a sample while they are gathered.
//! 5. `table`: [`Table`], the source.

mod cells;
mod columns;
mod csv;
mod json;
mod page;
mod scan;
mod syntax;
#[allow(clippy::module_inception)]
mod table;
mod text;

pub use table::Table;
