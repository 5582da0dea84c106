//! Makes each system call fail once, each time in a separate process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

#[path = "../support/process.rs"]
mod process;

mod attempt;
mod calls;
mod epoch;
mod loading;
mod packing;
mod sets;
mod sweep;
