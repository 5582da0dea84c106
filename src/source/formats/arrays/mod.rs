//! Data sets of whole arrays, whose first axis counts the samples.
//!
//! 1. [`Arrays`]: the arrays as a source. The names and types of the arrays decide their use, by
//!    the rules of `record`.
//! 2. `column`: one array in a file, or in memory.
//! 3. `numpy`: `.npy` files, folders of them, and `.npz` archives.
//! 4. `safetensors` and `torch`: their files.
//! 5. `hdf5`: arrays of an HDF5 file; `chunks`: those that are stored in chunks, and
//!    `filters`: their compression.
//! 6. `zip`: the members of an archive.
//! 7. `splits`: arrays called `train_images` and `images_test` belong to splits.

#[cfg(feature = "hdf5")]
mod chunks;
mod column;
#[cfg(feature = "hdf5")]
mod filters;
#[cfg(feature = "hdf5")]
mod hdf5;
mod numpy;
mod safetensors;
mod set;
mod splits;
mod torch;
mod zip;

pub use set::Arrays;

#[cfg(test)]
#[path = "../../../../tests/fuzz/arrays.rs"]
mod fuzz;
