//! Reads formats that store samples back to back in files, such as MDS and LitData.

mod checksum;
mod convert;
mod indexed;
mod offsets;
mod rows;
mod sample_files;
mod unpack;

pub(crate) use checksum::Checksum;
pub(crate) use convert::{bf16_to_f32, decimal, f16_to_f32, pil};
pub(crate) use indexed::Indexed;
pub(crate) use offsets::read_offsets;
pub(crate) use rows::{ColumnRanges, Layout, Rows, column_ranges};
pub(crate) use sample_files::{Items, SampleSpans};
pub(crate) use unpack::{Compression, check_copies, decompress_file};

#[cfg(test)]
#[path = "../../../tests/fuzz/chunks.rs"]
mod fuzz;
