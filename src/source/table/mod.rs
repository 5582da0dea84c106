//! Tables: one row per sample.
//!
//! 1. `options`: [`TableOptions`], the meaning of the columns.
//! 2. `text`: the file's text, and the numbers of its lines.
//! 3. `cells`: the cells of a row. `csv` and `json` parse them: comma- and tab-separated values,
//!    and JSON lines. `syntax`: either of the two. `scan`: one pass over all rows.
//! 4. `columns`: the use of each column in a sample.
//! 5. `page`: the bytes of a sample while they are gathered.
//! 6. `table`: [`Table`], the source.

mod cells;
mod columns;
mod csv;
mod json;
mod options;
mod page;
mod scan;
mod syntax;
#[allow(clippy::module_inception)]
mod table;
mod text;

pub use options::TableOptions;
pub use table::Table;
