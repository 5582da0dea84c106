//! Reads formats that store samples back to back in files, such as MDS and LitData.
//!
//! 1. `sample_files`: [`Items`], the files of a dataset and the offsets of their samples.
//! 2. `convert`: converts values in encodings that batches do not support.
//! 3. `indexed`: [`Indexed`], a folder with an `index.json` that lists its files.
//! 4. `offsets`: parses the table of 32-bit offsets at the start of a file.
//! 5. `unpack`: decompresses the files of a dataset when it is opened.
//! 6. `rows`: [`Rows`], a source of samples with typed columns.
//! 7. `checksum`: verifies the hashes of whole files.

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
