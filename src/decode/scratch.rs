//! Memory that the codecs of a thread keep between pictures.

use super::codecs;
#[cfg(feature = "formats")]
use super::image;

/// Limits the memory that the codecs of the calling thread keep to `limit` bytes.
pub(crate) fn keep(limit: usize) {
    let kept = codecs::keep(limit);
    #[cfg(feature = "formats")]
    image::keep(limit - kept);
    #[cfg(not(feature = "formats"))]
    let _ = kept;
}

/// Frees the memory that the codecs of the calling thread keep.
pub(crate) fn release() {
    codecs::release();
    #[cfg(feature = "formats")]
    image::release();
}
