//! The text of the project: its layering, and its promises.

mod layering;
mod promises;
