//! The text of the project: its layering, its promises, its parsers, its licenses and its skips.

#[path = "../support/require.rs"]
mod require;

mod formats;
mod layering;
mod licenses;
mod parsers;
mod promises;
mod skips;
