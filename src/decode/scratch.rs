#[cfg(feature = "formats")]
use super::image;
use super::jpegs;
#[cfg(feature = "video")]
use super::video;

/// Frees the largest buffers of the calling thread's codecs until these buffers take at most
/// `limit` bytes. The codecs' small buffers do not count.
pub(crate) fn trim(limit: usize) {
    let retained_bytes = jpegs::trim(limit);
    #[cfg(feature = "video")]
    let retained_bytes = retained_bytes + video::trim(limit - retained_bytes);
    #[cfg(feature = "formats")]
    image::trim(limit - retained_bytes);
    #[cfg(not(feature = "formats"))]
    let _ = retained_bytes;
}

pub(crate) fn release() {
    jpegs::release();
    #[cfg(feature = "formats")]
    image::release();
    #[cfg(feature = "video")]
    video::release();
}
