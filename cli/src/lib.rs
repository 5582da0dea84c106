//! The program `warpfeed`, and what it draws and calculates itself. The loader's tests, benches and
//! examples also draw their pictures with [`synth`].
//!
//! 1. [`run`]: the program.
//! 2. [`synth`]: a learnable set of drawn pictures, in class folders or in memory.
//! 3. [`occupancy`]: how many warps of a CUDA kernel a multiprocessor holds.
//! 4. [`report`]: the page of `warpfeed report`.

mod commands;
mod data;
mod log;
mod measure;
pub mod occupancy;
mod program;
mod progress;
mod size;
pub mod synth;

pub use commands::report::write as report;
pub(crate) use program::Outcome;
pub use program::run;
