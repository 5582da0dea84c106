//! What the program `warpfeed` draws and calculates itself. The program is `main.rs`. The loader's
//! tests, benches and examples also draw their pictures with [`synth`].
//!
//! 1. [`synth`]: a learnable set of drawn pictures, in class folders or in memory.
//! 2. [`occupancy`]: how many warps of a CUDA kernel a multiprocessor holds.

pub mod occupancy;
pub mod synth;
