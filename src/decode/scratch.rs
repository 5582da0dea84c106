//! Manages the memory that the codecs of a thread reuse for all images.

#[cfg(feature = "formats")]
use super::image;
use super::jpegs;
#[cfg(feature = "video")]
use super::video;

/// Frees memory of the calling thread's codecs, so that at most `limit` bytes remain
/// allocated.
pub(crate) fn keep(limit: usize) {
    let kept = jpegs::keep(limit);
    #[cfg(feature = "video")]
    let kept = kept + video::keep(limit - kept);
    #[cfg(feature = "formats")]
    image::keep(limit - kept);
    #[cfg(not(feature = "formats"))]
    let _ = kept;
}

/// Frees all memory of the calling thread's codecs.
pub(crate) fn release() {
    jpegs::release();
    #[cfg(feature = "formats")]
    image::release();
    #[cfg(feature = "video")]
    video::release();
}
