//! Tests the repository itself: the order of its modules, lists in the documentation, licenses, and
//! skipped tests.

#[path = "../support/require.rs"]
mod require;

mod formats;
mod layering;
mod licenses;
mod parsers;
mod promises;
mod skips;
