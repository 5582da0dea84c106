//! The program `warpfeed`. The loader's tests, benches and examples also use [`synth`].
//!
//! 1. [`run`]: the program.
//! 2. [`synth`]: a learnable set of drawn pictures, on disk or in memory.
//! 3. [`occupancy`]: the occupancy of CUDA kernels.
//! 4. [`report`]: the page of `warpfeed report`.
//! 5. [`respell`]: the options of other languages in the messages of the crate. [`warn`]: a warning,
//!    as the program prints it.

mod canvas;
mod commands;
mod data;
mod log;
mod measure;
pub mod occupancy;
mod output;
mod program;
mod progress;
mod size;
pub mod synth;
mod words;

pub use commands::report::write as report;
pub use log::warn;
pub(crate) use program::Outcome;
pub use program::run;
pub use words::respell;
