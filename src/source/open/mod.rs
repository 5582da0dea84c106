//! Opens a data set: finds its format, on this machine or at a URL.
//!
//! 1. `formats`: the table of formats.
//! 2. `open`: paths. `at_url`: URLs.

mod at_url;
mod formats;
#[allow(clippy::module_inception)]
mod open;

pub use formats::{DATA_FORMATS, DataFormat};
pub use open::open;
