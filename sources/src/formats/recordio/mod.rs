//! RecordIO files of MXNet and DALI: images with labels.
//!
//! 1. `record`: the frame of a record, which may have several parts.
//! 2. `index`: the places of the records, from the `.idx` file or the records themselves.
//! 3. `rows`: the label and the image of a record.
//! 4. `set`: opens a file.
//!
//! `row`: its row in the table of formats.

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
