//! Reads datasets that are stored as whole arrays with samples along the first axis.
//!
//! 1. [`Arrays`]: the source. The rules in `values::record` assign arrays to fields by name and
//!    type.
//! 2. `column`: one array, in a file or in memory.
//! 3. `numpy`: `.npy` files, folders of `.npy` files, and `.npz` archives.
//! 4. `safetensors` and `torch`: tensor files.
//! 5. `hdf5`: HDF5 files. `chunks` reads chunked arrays, and `filters` decompresses chunks.
//! 6. `zip`: the members of a zip archive.
//! 7. `splits`: finds splits in array names such as `train_images`.
//!
//! `data_format` registers these formats.

#[cfg(all(feature = "arrays", feature = "hdf5"))]
mod chunks;
#[cfg(feature = "arrays")]
mod column;
mod data_format;
#[cfg(all(feature = "arrays", feature = "hdf5"))]
mod filters;
#[cfg(all(feature = "arrays", feature = "hdf5"))]
mod hdf5;
#[cfg(feature = "arrays")]
mod numpy;
#[cfg(feature = "arrays")]
mod safetensors;
#[cfg(feature = "arrays")]
mod source;
#[cfg(feature = "arrays")]
mod splits;
#[cfg(feature = "arrays")]
mod torch;
#[cfg(feature = "arrays")]
mod zip;

pub(crate) use data_format::{HDF5, NPY, NPZ, SAFETENSORS, TORCH};
#[cfg(feature = "arrays")]
pub use source::Arrays;

#[cfg(all(test, feature = "arrays"))]
#[path = "../../../tests/fuzz/arrays.rs"]
mod fuzz;
