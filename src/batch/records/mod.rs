//! Instructions for a device, one record per sample. Workers write them into the slot, and the
//! kernels of any vendor read them.
//!
//! 1. `sample`: effects, and mixing with a partner.
//! 2. `decode`: decoding an image.

mod decode;
mod sample;

#[cfg(all(test, feature = "_device"))]
pub(crate) use decode::Component;
pub use decode::DecodeOps;
pub(crate) use decode::Encoded;
pub use sample::SampleOps;
