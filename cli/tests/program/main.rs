//! The program, most of it as the built binary that its tests start.

mod annotated;
mod auto_traits;
mod commands;
mod disk_full;
mod occupancy;
mod progress;
mod support;
mod tables;
