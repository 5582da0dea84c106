//! [`Decoder`]: the trait of the decoders for formats other than JPEG.

use warpfeed_jpeg::Orientation;

use super::Size;

/// A function that reads the header of an image in a known format. The second argument is the
/// maximum number of bytes that the decoder may allocate for its own buffers.
pub(super) type Open = for<'a> fn(&'a [u8], usize) -> Result<AnyDecoder<'a>, String>;

/// A decoder that has read the header of an image.
pub(super) type AnyDecoder<'a> = Box<dyn Decoder + Send + 'a>;

/// Decodes an image after its header has been read. The decoder of each format implements this
/// trait.
pub(super) trait Decoder {
    /// Returns the size of the stored image. The width or height may be 0.
    fn size(&self) -> Size;

    /// Returns the format of the stored pixels, which [`read`](Decoder::read) writes.
    fn color(&self) -> Color;

    /// Returns the EXIF orientation, from 1 to 8. Any other value is treated as 1 (upright).
    fn orientation(&self) -> u8;

    /// Decodes all pixels into `out`, which must have exactly the size of the pixels in bytes.
    fn read(self: Box<Self>, out: &mut [u8]) -> Result<(), String>;

    /// Returns whether each pixel is stored as a palette index or gray value of at most 8 bits.
    fn is_indexed(&self) -> bool {
        false
    }

    /// Decodes palette indices or gray values into `out`, with one byte per pixel. Returns an error
    /// if the image is not [indexed](Decoder::is_indexed).
    fn read_indices(self: Box<Self>, _to: &mut [u8]) -> Result<(), String> {
        Err("the format does not store one number per pixel".to_owned())
    }
}

/// Format of the pixels: gray or RGB, with or without alpha.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Color {
    /// Number of channels, 1 to 4.
    pub(super) channels: u8,
    pub(super) depth: Depth,
}

/// Type of the values of a channel. Values are in native byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    U8,
    U16,
    F32,
}

impl Color {
    pub(super) const RGB8: Color = Color::of_8_bits(3);

    pub(super) const fn of_8_bits(channels: u8) -> Self {
        Color { channels, depth: Depth::U8 }
    }

    /// Returns the number of bytes per pixel.
    pub(super) fn bytes(self) -> u64 {
        let each = match self.depth {
            Depth::U8 => 1,
            Depth::U16 => 2,
            Depth::F32 => 4,
        };
        u64::from(self.channels) * each
    }
}

/// An image whose header has been read.
pub(super) struct Opened<'a> {
    /// The decoder, or `None` after it has been used.
    pub(super) decoder: Option<AnyDecoder<'a>>,
    /// How many bytes checking the values takes, for an image that only a dense map can read;
    /// otherwise 0.
    pub(super) check_memory: u64,
    /// Size of the stored image, before the EXIF orientation is applied.
    pub(super) stored: Size,
    pub(super) orientation: Orientation,
}

impl Opened<'_> {
    /// Returns the size of the upright image.
    pub(super) fn size(&self) -> Size {
        self.orientation.size(self.stored)
    }

    /// Returns how many bytes checking the values takes, for an image that only a dense map can
    /// read; otherwise 0.
    pub(super) fn check_memory(&self) -> u64 {
        self.check_memory
    }

    /// Returns the orientation of the stored image.
    pub(super) fn orientation(&self) -> Orientation {
        self.orientation
    }
}
