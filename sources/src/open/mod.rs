//! Opens a dataset: finds its format, on this machine or in a store.
//!
//! 1. `walk`: what lies at a path or URL, and its format by the rows of the formats.
//! 2. `open`: the function and the method for it.

#[allow(clippy::module_inception)]
mod open;
mod walk;

pub use open::open;
