//! Tests with random schedules of faults and random interleavings of threads. Tests that count the
//! threads of the process call `process::serial` first.

#[path = "../support/process.rs"]
mod process;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[path = "../support/scheduler/mod.rs"]
mod scheduler;
#[path = "../support/mod.rs"]
mod support;

mod faults;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod orders;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod requests;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: scheduler::Allocator = scheduler::Allocator;
