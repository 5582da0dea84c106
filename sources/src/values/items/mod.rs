//! Samples that lie in files one after the other, as other libraries pack them.
//!
//! 1. `set`: [`Items`], the files of a dataset with the place of each sample.
//! 2. `convert`: values in encodings that a batch cannot hold as they are.
//! 3. `indexed`: a folder of files that an `index.json` lists.
//! 4. `offsets`: the head of a file, a table of offsets of 32 bits.
//! 5. `unpack`: compressed files, which are decompressed once.
//! 6. `rows`: [`Rows`], the source of samples with typed columns.
//! 7. `checksum`: hashes of whole files.

mod checksum;
mod convert;
mod indexed;
mod offsets;
mod rows;
mod set;
mod unpack;

pub(crate) use checksum::Checksum;
pub(crate) use convert::{decimal, pil, widened, widened_brain};
pub(crate) use indexed::Indexed;
pub(crate) use offsets::read_offsets;
pub(crate) use rows::{Layout, Places, Rows, places};
pub(crate) use set::{Items, Samples};
pub(crate) use unpack::{Unpack, check_copies, unpacked};

#[cfg(test)]
#[path = "../../../tests/fuzz/chunks.rs"]
mod fuzz;
