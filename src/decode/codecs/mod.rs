//! The built-in codecs.
//!
//! 1. `side_by_side`: decodes several JPEGs at a time.
//! 2. `jpeg`, `image`: JPEGs, and the formats of the `image` crate.
//! 3. `registry`: [`Codecs`], the built-in codecs and the user's.

mod image;
mod jpeg;
mod registry;
pub(in crate::decode) mod side_by_side;

pub(super) use jpeg::{keep, release};
pub use registry::Codecs;
