//! Schedules that are drawn from a seed: of faults, and of the order in which threads run. Tests that
//! count the threads of the process begin with `process::alone`.

#[path = "../support/process.rs"]
mod process;
#[cfg(target_os = "linux")]
#[path = "../support/scheduler.rs"]
mod scheduler;
#[path = "../support/mod.rs"]
mod support;

mod faults;
#[cfg(target_os = "linux")]
mod requests;

#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: scheduler::Allocator = scheduler::Allocator;
