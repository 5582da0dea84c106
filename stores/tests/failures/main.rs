//! Runs loaders with a cache in separate processes. In each process, a different call fails.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

#[path = "../../../tests/support/process.rs"]
mod process;

#[path = "../../../tests/failures/calls.rs"]
mod calls;
#[path = "../../../tests/failures/child.rs"]
mod child;
#[path = "../../../tests/failures/datasets.rs"]
mod datasets;
#[path = "../../../tests/failures/epoch.rs"]
mod epoch;
#[path = "../../../tests/support/objects.rs"]
mod objects;
#[path = "../../../tests/failures/sweep.rs"]
mod sweep;

mod cached;
