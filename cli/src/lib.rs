//! The program `warpfeed`.
//!
//! 1. [`run`]: the program.
//! 2. [`occupancy`]: the occupancy of CUDA kernels.
//! 3. [`report`]: the page of `warpfeed report`.
//! 4. [`respell`]: the options of other languages in the messages of the crate. [`warn`]: a warning,
//!    as the program prints it.

mod canvas;
mod commands;
mod data;
mod log;
mod measure;
pub mod occupancy;
mod option_names;
mod output;
mod program;
mod progress;
mod size;

pub use commands::report::write as report;
pub use log::warn;
pub use option_names::respell;
pub(crate) use program::Outcome;
pub use program::run;
