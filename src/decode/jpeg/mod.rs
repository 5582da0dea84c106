//! The crate's own JPEG decoder.
//!
//! 1. `header`: the marker segments, checked.
//! 2. `huffman`: Huffman tables, as written in a file and as looked up.
//! 3. `coefficients`: every scan of any Huffman-coded file into planes of coefficients; slow and plain.

#[allow(dead_code)]
pub(crate) mod coefficients;
#[allow(dead_code)]
pub(crate) mod header;
#[allow(dead_code)]
pub(crate) mod huffman;
