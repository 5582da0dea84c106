//! Rewrites JPEGs losslessly for fast crops.
//!
//! 1. `tokens`: an image as Huffman symbols, from a sequential scan or from coefficient planes.
//! 2. `tables`: the Huffman tables, standard or optimized for the image.
//! 3. `write`: marker segments and data.
//! 4. `rewrite`: [`repack()`], which runs these steps.

mod rewrite;
mod tables;
mod tokens;
mod write;

pub use rewrite::repack;

#[cfg(test)]
#[path = "../../tests/fuzz/repack.rs"]
mod fuzz;
