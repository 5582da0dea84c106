//! Memory that the codecs of a thread keep between images.

#[cfg(feature = "formats")]
use super::image;
use super::jpegs;

/// Limits the memory that the codecs of the calling thread keep to `limit` bytes.
pub(crate) fn keep(limit: usize) {
    let kept = jpegs::keep(limit);
    #[cfg(feature = "formats")]
    image::keep(limit - kept);
    #[cfg(not(feature = "formats"))]
    let _ = kept;
}

/// Frees the memory that the codecs of the calling thread keep.
pub(crate) fn release() {
    jpegs::release();
    #[cfg(feature = "formats")]
    image::release();
}
