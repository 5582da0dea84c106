//! RecordIO files, which MXNet and DALI use for images with labels.
//!
//! 1. `record`: the frames of a record, which may consist of several parts.
//! 2. `index`: the offsets of the records, from the `.idx` file or from a scan.
//! 3. `rows`: the label and the image in a record.
//! 4. `set`: opens a file.
//!
//! `row` registers the format.

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
