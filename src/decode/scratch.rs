//! Memory that the codecs of a thread reuse between images.

#[cfg(feature = "formats")]
use super::image;
use super::jpegs;

/// Frees memory that the codecs of the calling thread retain, so that at most `limit` bytes remain.
pub(crate) fn keep(limit: usize) {
    let kept = jpegs::keep(limit);
    #[cfg(feature = "formats")]
    image::keep(limit - kept);
    #[cfg(not(feature = "formats"))]
    let _ = kept;
}

/// Frees the memory that the codecs of the calling thread retain.
pub(crate) fn release() {
    jpegs::release();
    #[cfg(feature = "formats")]
    image::release();
}
