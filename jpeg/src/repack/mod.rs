//! Rewrites JPEGs losslessly for fast crops.
//!
//! 1. `tokens`: reads an image as Huffman symbols, from a sequential scan or from coefficient
//!    planes.
//! 2. `tables`: chooses the Huffman tables, either standard tables or tables optimized for the
//!    image.
//! 3. `write`: writes marker segments and entropy-coded data.
//! 4. `rewrite`: [`repack()`], which runs these steps.

mod rewrite;
mod tables;
mod tokens;
mod write;

pub use rewrite::repack;

#[cfg(test)]
#[path = "../../tests/fuzz/repack.rs"]
mod fuzz;
