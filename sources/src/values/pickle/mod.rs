//! Python's pickles of plain data, without running any of their code.
//!
//! 1. `nodes`: the values of a pickle. Containers refer to their elements by number, so a container
//!    that contains itself is harmless.
//! 2. `allowed`: the functions of NumPy and PyTorch that rebuild arrays, recognized by name.
//! 3. `read`: the opcodes. Those that create other objects are refused by name and offset.
//! 4. `json`: nested values as JSON.

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
