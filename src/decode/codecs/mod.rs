//! The built-in codecs.
//!
//! 1. `side_by_side`: decodes several JPEGs at a time.
//! 2. `jpeg`, `image`: JPEGs, and the other formats.
//! 3. `registry`: [`Codecs`], the built-in codecs and the user's; `unknown`: the error for bytes
//!    that none of them matches.

#[cfg(feature = "formats")]
mod image;
mod jpeg;
mod registry;
pub(in crate::decode) mod side_by_side;
mod unknown;

pub(super) use jpeg::{Jpeg, keep, release};
pub use registry::Codecs;
