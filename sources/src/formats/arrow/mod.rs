//! Reads Arrow files in the streaming or the file format, including the datasets that the Hugging
//! Face `datasets` library writes.

mod cells;
mod data_format;
mod flat;
mod schema;
mod source;
mod stream;

pub(crate) use data_format::DATA_FORMAT;
pub use source::Arrow;
pub(crate) use stream::MAGIC;
