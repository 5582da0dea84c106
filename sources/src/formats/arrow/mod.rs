//! Reads Arrow files in the streaming or the file format, which the Hugging Face `datasets` library
//! writes.
//!
//! 1. `source`: [`Arrow`], the source.
//! 2. `stream`: parses and checks the message headers of a file.
//! 3. `schema`: the columns of a file.
//! 4. `flat`: FlatBuffers tables, which encode the headers.
//! 5. `cells`: reads single values.
//!
//! `data_format` registers the format.

mod cells;
mod data_format;
mod flat;
mod schema;
mod source;
mod stream;

pub(crate) use data_format::DATA_FORMAT;
pub use source::Arrow;
pub(crate) use stream::MAGIC;
