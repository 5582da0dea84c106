//! What the program `warpfeed` makes and calculates by itself. The program is `main.rs`; the loader's
//! tests, benches and examples draw their pictures with [`synth`] too.
//!
//! 1. [`synth`]: a learnable set of drawn pictures, in class folders or in memory.
//! 2. [`occupancy`]: how many warps of a CUDA kernel a multiprocessor holds.

pub mod occupancy;
pub mod synth;
