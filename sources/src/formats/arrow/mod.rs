//! Arrow files in the stream format, as the library `datasets` saves and caches them.
//!
//! 1. `set`: [`Arrow`], the source.
//! 2. `stream`: the headers of a file, checked once.
//! 3. `schema`: its columns.
//! 4. `flat`: tables of FlatBuffers, the encoding of the headers.
//! 5. `cells`: the value of a column in a row.
//!
//! `row`: its row in the table of formats.

mod cells;
mod flat;
mod row;
mod schema;
mod set;
mod stream;

pub(crate) use row::ROW;
pub use set::Arrow;
pub(crate) use stream::MAGIC;
