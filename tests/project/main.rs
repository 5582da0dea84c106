//! The text of the project: its layering, its promises, its licences and its skips.

#[path = "../support/require.rs"]
mod require;

mod layering;
mod licences;
mod promises;
mod skips;
