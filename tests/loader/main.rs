//! Tests the loader: options, fault handling, limits, statistics and traces.

#[path = "../support/objects.rs"]
mod objects;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/require.rs"]
mod require;
#[path = "../support/mod.rs"]
mod support;

mod auto_traits;
mod backpressure;
mod errors;
mod faults;
mod no_cuda;
mod nvtx;
mod pairs;
mod panics;
mod rayon_users;
mod retries;
mod stats;
