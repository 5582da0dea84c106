//! Each call of the system fails once below a cache, in processes of their own.
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
#[allow(unreachable_pub)] // the twins also use it
mod store;
#[path = "../../../tests/failures/sweep.rs"]
mod sweep;

mod cached;
