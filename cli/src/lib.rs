//! The command-line tool `warpfeed`, as a library for its binary and for the Python package.

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
