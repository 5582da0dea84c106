//! Tests that measure the memory of the process. Each test calls `process::serial` first, so that
//! they run one at a time.

#[path = "../support/files.rs"]
mod files;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/require.rs"]
mod require;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiff.rs"]
mod tiff;

mod allocations;
mod checks;
mod counting;
mod limits;
mod scratch;
