//! RecordIO files of MXNet and DALI: pictures with labels.
//!
//! 1. `record`: the frame of a record, which may have several parts.
//! 2. `index`: the places of the records, from the `.idx` file or the records themselves.
//! 3. `rows`: the label and the picture of a record.
//! 4. `set`: opens a file.

mod index;
mod record;
mod rows;
mod set;

pub(in crate::source) use set::open;
