//! The options of the built-in codecs.

/// Default maximum number of pixels: 16,384 by 16,384.
const MAX_PIXELS: u64 = 1 << 28;

/// Options of the built-in codecs.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(all(feature = "formats", feature = "video")), allow(dead_code))]
pub(super) struct Options {
    /// Maximum number of pixels per image.
    pub(super) max_pixels: u64,
    /// Color with which transparent pixels are blended. If it is `None`, alpha is dropped.
    pub(super) background: Option<[u8; 3]>,
    /// Whether channels with more than 8 bits are converted to 8 bits.
    pub(super) convert_to_u8: bool,
    /// Index of the GPU that decodes frames of videos.
    pub(super) gpu: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { max_pixels: MAX_PIXELS, background: None, convert_to_u8: false, gpu: 0 }
    }
}
