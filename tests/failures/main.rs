//! Makes single system calls and large allocations fail, each in a separate process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

#[path = "../support/before_read.rs"]
mod before_read;
#[path = "../support/process.rs"]
mod process;

mod calls;
mod child;
mod datasets;
mod epoch;
mod loading;
mod packing;
mod sweep;
