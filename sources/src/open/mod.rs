//! Detects the format of a local or remote dataset, and opens the dataset.

#[allow(clippy::module_inception)]
mod open;
mod walk;

pub use open::open;
