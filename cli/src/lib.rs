//! The command-line tool `warpfeed`.
//!
//! 1. [`run`]: runs the tool.
//! 2. [`occupancy`]: computes the occupancy of CUDA kernels.
//! 3. [`report`]: writes the page of `warpfeed report`.
//! 4. [`respell`]: rewrites the Rust options in messages, such as to command-line flags. [`warn`]:
//!    prints a warning in the format of the tool.

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
