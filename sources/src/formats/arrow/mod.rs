//! Arrow files in the stream format, as saved and cached by the library `datasets`.
//!
//! 1. `set`: [`Arrow`], the source.
//! 2. `stream`: the message headers of a file, which are checked once.
//! 3. `schema`: the columns of a file.
//! 4. `flat`: FlatBuffers tables, which encode the headers.
//! 5. `cells`: reads the value of a column in a row.
//!
//! `row` registers the format.

mod cells;
mod flat;
mod row;
mod schema;
mod set;
mod stream;

pub(crate) use row::ROW;
pub use set::Arrow;
pub(crate) use stream::MAGIC;
