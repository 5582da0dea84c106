//! Reads files in the Arrow streaming format, which the Hugging Face `datasets` library writes.
//!
//! 1. `set`: [`Arrow`], the source.
//! 2. `stream`: parses and checks the message headers of a file.
//! 3. `schema`: the columns of a file.
//! 4. `flat`: FlatBuffers tables, which encode the headers.
//! 5. `cells`: reads single values.
//!
//! `row` contains the format's entry in `DATA_FORMATS`.

mod cells;
mod flat;
mod row;
mod schema;
mod set;
mod stream;

pub(crate) use row::ROW;
pub use set::Arrow;
pub(crate) use stream::MAGIC;
