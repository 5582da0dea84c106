//! The options of the built-in codecs.

/// Default limit on the pixels of an image: 16,384 by 16,384.
const MAX_PIXELS: u64 = 1 << 28;

#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(all(feature = "formats", feature = "video")), allow(dead_code))]
pub(super) struct Options {
    pub(super) max_pixels: u64,
    /// The color with which transparent pixels are blended, or `None` to drop the alpha channel.
    pub(super) background: Option<[u8; 3]>,
    pub(super) convert_to_u8: bool,
    /// Index of the GPU that decodes the videos that the CPU cannot decode.
    pub(super) gpu: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { max_pixels: MAX_PIXELS, background: None, convert_to_u8: false, gpu: 0 }
    }
}
