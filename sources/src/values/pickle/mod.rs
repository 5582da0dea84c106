//! Reads Python pickles of plain data without running any code in them.
//!
//! 1. `nodes`: the values in a pickle. Containers refer to their elements by index, so a container
//!    that contains itself is harmless.
//! 2. `allowed`: evaluates the calls by which NumPy and PyTorch rebuild arrays. The functions are
//!    recognized by name and never called.
//! 3. `read`: interprets the opcodes. Rejects any opcode that creates an object other than plain
//!    data, with an error that states the opcode and its offset.
//! 4. `json`: converts nested values to JSON.

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
