//! Reads datasets that are stored as whole arrays with samples along the first axis.

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
