//! Datasets of whole arrays, whose first axis counts the samples.
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
//!
//! `row`: its row in the table of formats.

#[cfg(all(feature = "arrays", feature = "hdf5"))]
mod chunks;
#[cfg(feature = "arrays")]
mod column;
#[cfg(all(feature = "arrays", feature = "hdf5"))]
mod filters;
#[cfg(all(feature = "arrays", feature = "hdf5"))]
mod hdf5;
#[cfg(feature = "arrays")]
mod numpy;
mod row;
#[cfg(feature = "arrays")]
mod safetensors;
#[cfg(feature = "arrays")]
mod set;
#[cfg(feature = "arrays")]
mod splits;
#[cfg(feature = "arrays")]
mod torch;
#[cfg(feature = "arrays")]
mod zip;

pub(crate) use row::{HDF5, NPY, NPZ, SAFETENSORS, TORCH};
#[cfg(feature = "arrays")]
pub use set::Arrays;

#[cfg(all(test, feature = "arrays"))]
#[path = "../../../tests/fuzz/arrays.rs"]
mod fuzz;
