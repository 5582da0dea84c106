//! Instructions for a device, in records for each image or frame. Workers write the records into
//! the slot of the batch, and the device's kernels read them.

mod decode;
mod sample;
#[cfg(any(feature = "video", all(test, feature = "_device")))]
mod yuv;

#[cfg(all(test, feature = "_device"))]
pub(crate) use decode::Component;
pub use decode::DecodeOps;
pub(crate) use decode::EncodedLocation;
pub use sample::SampleOps;
#[cfg(all(test, feature = "_device"))]
pub(crate) use yuv::YuvHead;
#[cfg(feature = "video")]
pub(crate) use yuv::YuvRegion;
