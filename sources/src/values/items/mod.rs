//! Reads formats that store samples back to back in files, such as MDS and LitData.

mod checksum;
mod convert;
mod decompress;
mod indexed;
mod offsets;
mod rows;
mod sample_files;

pub(crate) use checksum::Checksum;
pub(crate) use convert::{bf16_to_f32, decode_decimal, decode_pillow, f16_to_f32};
pub(crate) use decompress::{Compression, check_copies, decompress_file};
pub(crate) use indexed::Indexed;
pub(crate) use offsets::read_offsets;
pub(crate) use rows::{ColumnRanges, Layout, RowSource, column_ranges};
pub(crate) use sample_files::{SampleFiles, SampleSpans};

#[cfg(test)]
#[path = "../../../tests/fuzz/chunks.rs"]
mod fuzz;
