//! Runs loaders with a cache in separate processes, and makes one of their system calls fail in
//! each process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

#[path = "../../../tests/support/process.rs"]
mod process;

#[path = "../../../tests/failures/attempt.rs"]
mod attempt;
#[path = "../../../tests/failures/calls.rs"]
mod calls;
#[path = "../../../tests/failures/epoch.rs"]
mod epoch;
#[path = "../../../tests/failures/sets.rs"]
mod sets;
#[path = "../../../tests/twins/store.rs"]
#[allow(unreachable_pub)] // shared with the tests of twins
mod store;
#[path = "../../../tests/failures/sweep.rs"]
mod sweep;

mod cached;
