//! Detects the format of a local or remote dataset, and opens the dataset.
//!
//! 1. `walk`: examines a path or URL to detect the format.
//! 2. `open`: the public function [`open`](crate::open()), and the methods of
//!    [`Options`](crate::Options) that open a dataset.

#[allow(clippy::module_inception)]
mod open;
mod walk;

pub use open::open;
