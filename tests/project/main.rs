//! Tests of the repository itself: module order, lists in the documentation, licenses, and skipped
//! tests.

#[path = "../support/require.rs"]
mod require;

mod formats;
mod layering;
mod licenses;
mod parsers;
mod promises;
mod skips;
