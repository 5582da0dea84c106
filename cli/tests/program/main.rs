//! Tests the command-line tool. Most tests run the built binary.

mod annotated;
mod auto_traits;
mod commands;
mod disk_full;
mod formats;
mod occupancy;
mod progress;
#[path = "../../../tests/support/require.rs"]
mod require;
mod support;
mod tables;
