//! Tests of the repository itself: layering, promises, parsers, licenses and skips.

#[path = "../support/require.rs"]
mod require;

mod formats;
mod layering;
mod licenses;
mod parsers;
mod promises;
mod skips;
