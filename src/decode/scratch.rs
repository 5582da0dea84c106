#[cfg(feature = "formats")]
use super::image;
use super::jpegs;
#[cfg(feature = "video")]
use super::video;

/// Frees the largest buffers of the calling thread's codecs until these buffers take at most
/// `max_bytes` bytes. The codecs' small buffers do not count.
pub(crate) fn trim_scratch(max_bytes: usize) {
    let retained_bytes = jpegs::trim_to(max_bytes);
    #[cfg(feature = "video")]
    let retained_bytes = retained_bytes + video::trim_to(max_bytes - retained_bytes);
    #[cfg(feature = "formats")]
    image::trim_to(max_bytes - retained_bytes);
    #[cfg(not(feature = "formats"))]
    let _ = retained_bytes;
}

pub(crate) fn release_scratch() {
    jpegs::release();
    #[cfg(feature = "formats")]
    image::release();
    #[cfg(feature = "video")]
    video::release();
}
