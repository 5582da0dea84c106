//! Reads RecordIO files, the format of MXNet and DALI for images with labels.
//!
//! 1. `record`: joins the frames of a record.
//! 2. `index`: locates the records, with the `.idx` file or by scanning the file.
//! 3. `layout`: locates and decodes the label and the image in a record.
//! 4. `open`: opens a file.
//!
//! `data_format` registers the format.

mod data_format;
#[cfg(feature = "chunks")]
mod index;
#[cfg(feature = "chunks")]
mod layout;
#[cfg(feature = "chunks")]
mod open;
#[cfg(feature = "chunks")]
mod record;

pub(crate) use data_format::DATA_FORMAT;
