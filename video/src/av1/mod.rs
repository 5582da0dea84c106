//! Decodes AV1 with rav1d (crate `re_rav1d`).

mod dav1d;
mod frames;

pub use dav1d::{Decoder, Picture};
pub use frames::FrameDecoder;
