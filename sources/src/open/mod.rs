//! Opens a data set: finds its format, on this machine or at a URL.
//!
//! 1. `formats`: files and folders, by the rows of the formats.
//! 2. `open`: paths. `at_url`: URLs.

mod at_url;
mod formats;
#[allow(clippy::module_inception)]
mod open;

pub use open::open;
