//! Makes each system call fail once, each time in a separate process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

#[path = "../support/process.rs"]
mod process;

mod calls;
mod child;
mod datasets;
mod epoch;
mod loading;
mod packing;
mod sweep;
