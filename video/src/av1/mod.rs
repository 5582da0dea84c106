//! Decodes AV1 with rav1d, a Rust port of dav1d (the `re_rav1d` crate).

mod dav1d;
mod frames;

pub use dav1d::{Decoder, Picture};
pub use frames::FrameDecoder;
