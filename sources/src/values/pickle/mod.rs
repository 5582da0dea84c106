//! Reads Python pickles of plain data without running any code in them. The functions by which
//! NumPy and PyTorch rebuild arrays are recognized by name and evaluated here, but never called.

mod allowed;
mod json;
mod nodes;
mod read;

#[cfg(feature = "lmdb")]
pub(crate) use json::append_json;
#[cfg(feature = "lmdb")]
pub(crate) use nodes::Array;
#[cfg(feature = "arrays")]
pub(crate) use nodes::Tensor;
pub(crate) use nodes::{Id, Node, Nodes};
#[cfg(feature = "lmdb")]
pub(crate) use read::read;
#[cfg(feature = "arrays")]
pub(crate) use read::read_torch;

#[cfg(test)]
#[path = "../../../tests/fuzz/pickle.rs"]
mod fuzz;
