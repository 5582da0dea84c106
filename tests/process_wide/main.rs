//! Tests that count threads, measure time, fork, or use process-wide state. Each test calls
//! `process::serial` first, so that only one of them runs at a time.

#[path = "../support/process.rs"]
mod process;
#[path = "../support/require.rs"]
mod require;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/warnings.rs"]
mod warnings;

mod class_warnings;
mod early_drop;
mod fork;
mod many_workers;
mod monitor;
mod prefetching;
mod readers;
mod soak;
mod trace;
mod tune;
mod verdict;
