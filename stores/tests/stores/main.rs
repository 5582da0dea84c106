//! Tests object stores. A test that sets environment variables runs in a separate process.

#[path = "../../../tests/support/objects.rs"]
mod objects;
#[path = "../../../tests/support/process.rs"]
mod process;
#[path = "../../../tests/support/require.rs"]
mod require;
mod support;

mod cache;
mod cached;
mod equivalence;
mod faults;
mod files;
mod hub;
mod listings;
mod outage;
mod requests;
mod server;
mod uploads;
