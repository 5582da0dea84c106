//! [`Decoder`]: the trait of the decoders for PNG, WebP, GIF, BMP and TIFF.

use warpfeed_jpeg::Orientation;

use super::Size;

/// Reads the header of an image. The second argument is the maximum number of bytes for the
/// decoder's own buffers. The BMP decoder ignores this limit.
pub(super) type OpenFn = for<'a> fn(&'a [u8], usize) -> Result<BoxedDecoder<'a>, String>;

pub(super) type BoxedDecoder<'a> = Box<dyn Decoder + Send + 'a>;

pub(super) trait Decoder {
    /// Returns the size of the stored image. The width or height may be 0.
    fn size(&self) -> Size;

    /// Returns the format of the pixels that [`read`](Decoder::read) writes.
    fn pixel_format(&self) -> PixelFormat;

    /// Returns the size of the large buffers that [`read`](Decoder::read) allocates, in bytes, if
    /// they may exceed 8 bytes per pixel, and 0 otherwise.
    fn scratch_bytes(&self) -> u64 {
        0
    }

    /// Returns the EXIF orientation from 1 to 8. Any other value stands for 1 (upright).
    fn orientation(&self) -> u8;

    /// Decodes the pixels to `out`. The length of `out` must be the number of pixels times
    /// [`PixelFormat::bytes_per_pixel`].
    fn read(self: Box<Self>, out: &mut [u8]) -> Result<(), String>;

    /// Returns whether [`read_indices`](Decoder::read_indices) supports the image. Each pixel is
    /// then stored as a palette index or a gray value of at most 8 bits.
    fn is_indexed(&self) -> bool {
        false
    }

    /// Decodes palette indices or gray values, with one byte per pixel. The image must be
    /// [indexed](Decoder::is_indexed).
    fn read_indices(self: Box<Self>, _to: &mut [u8]) -> Result<(), String> {
        Err("the format does not store one number per pixel".to_owned())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PixelFormat {
    /// Number of channels, 1 to 4.
    pub(super) channels: u8,
    pub(super) channel_type: ChannelType,
}

/// The type of a channel's values, which are in native byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelType {
    U8,
    U16,
    F32,
}

impl PixelFormat {
    pub(super) const RGB8: PixelFormat = PixelFormat::of_8_bits(3);

    pub(super) const fn of_8_bits(channels: u8) -> Self {
        PixelFormat { channels, channel_type: ChannelType::U8 }
    }

    pub(super) fn bytes_per_pixel(self) -> u64 {
        let value_bytes = match self.channel_type {
            ChannelType::U8 => 1,
            ChannelType::U16 => 2,
            ChannelType::F32 => 4,
        };
        u64::from(self.channels) * value_bytes
    }
}

/// An image whose header has been read.
pub(super) struct OpenedImage<'a> {
    /// The decoder. `None` after it has been used, and for an image that only a dense map can read.
    pub(super) decoder: Option<BoxedDecoder<'a>>,
    /// Estimated memory for decoding, apart from the RGB pixels, in bytes; 0 for an image that only
    /// a dense map can read.
    pub(super) scratch_bytes: u64,
    /// Estimated memory for checking the values of an image that only a dense map can read, in
    /// bytes; 0 for all other images.
    pub(super) check_memory: u64,
    /// Size before the EXIF orientation is applied.
    pub(super) stored_size: Size,
    pub(super) orientation: Orientation,
}

impl OpenedImage<'_> {
    pub(super) fn size(&self) -> Size {
        self.orientation.size(self.stored_size)
    }

    pub(super) fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }

    pub(super) fn check_memory(&self) -> u64 {
        self.check_memory
    }

    pub(super) fn orientation(&self) -> Orientation {
        self.orientation
    }
}
