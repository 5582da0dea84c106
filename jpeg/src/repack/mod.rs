//! Rewrites JPEGs losslessly for fast crops. Reads the Huffman symbols of an image (`tokens`),
//! chooses tables for the symbols (`tables`), and writes the file (`write`).

mod rewrite;
mod tables;
mod tokens;
mod write;

pub use rewrite::repack;

#[cfg(test)]
#[path = "../../tests/fuzz/repack.rs"]
mod fuzz;
