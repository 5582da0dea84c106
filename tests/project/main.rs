//! The text of the project: its layering, its promises, its parsers, its licences and its skips.

#[path = "../support/require.rs"]
mod require;

mod formats;
mod layering;
mod licences;
mod parsers;
mod promises;
mod skips;
