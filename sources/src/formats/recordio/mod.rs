//! Reads RecordIO files, the format of MXNet and DALI for images with labels.
//!
//! 1. `record`: joins the frames of a record.
//! 2. `index`: locates the records, with the `.idx` file or by scanning the file.
//! 3. `rows`: locates and decodes the label and the image in a record.
//! 4. `set`: opens a file.
//!
//! `row` contains the format's entry in `DATA_FORMATS`.

#[cfg(feature = "chunks")]
mod index;
#[cfg(feature = "chunks")]
mod record;
mod row;
#[cfg(feature = "chunks")]
mod rows;
#[cfg(feature = "chunks")]
mod set;

pub(crate) use row::ROW;
