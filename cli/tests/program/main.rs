//! Tests of the program. Most run the built binary.

mod annotated;
mod auto_traits;
mod commands;
mod disk_full;
mod formats;
mod occupancy;
mod progress;
mod support;
mod tables;
