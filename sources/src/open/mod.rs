//! Opens a dataset, locally or in a store, after detecting its format.
//!
//! 1. `walk`: examines a path or URL, and finds its format in the table of formats.
//! 2. `open`: the public function [`open`](crate::open()), and the methods of
//!    [`Options`](crate::Options) that open a dataset.

#[allow(clippy::module_inception)]
mod open;
mod walk;

pub use open::open;
