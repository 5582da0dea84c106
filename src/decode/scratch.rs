//! Manages the memory that the codecs of a thread reuse for all images.

#[cfg(feature = "formats")]
use super::image;
use super::jpegs;
#[cfg(feature = "video")]
use super::video;

/// Frees memory of the calling thread's codecs beyond `limit` bytes.
pub(crate) fn keep(limit: usize) {
    let kept_bytes = jpegs::keep(limit);
    #[cfg(feature = "video")]
    let kept_bytes = kept_bytes + video::keep(limit - kept_bytes);
    #[cfg(feature = "formats")]
    image::keep(limit - kept_bytes);
    #[cfg(not(feature = "formats"))]
    let _ = kept_bytes;
}

pub(crate) fn release() {
    jpegs::release();
    #[cfg(feature = "formats")]
    image::release();
    #[cfg(feature = "video")]
    video::release();
}
