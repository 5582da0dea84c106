//! The trait that decoders for formats other than JPEG implement.

use warpfeed_jpeg::Orientation;

use super::Size;

/// A function that reads the header of an encoded image whose format is known. The second argument
/// limits the bytes that the decoder may allocate for its own buffers.
pub(super) type Open = for<'a> fn(&'a [u8], usize) -> Result<AnyDecoder<'a>, String>;

/// A decoder that has read the header of an image.
pub(super) type AnyDecoder<'a> = Box<dyn Decoder + Send + 'a>;

/// Decodes one opened image. Each format implements this trait.
pub(super) trait Decoder {
    /// Returns the size of the stored image. Width or height may be 0.
    fn size(&self) -> Size;

    /// Returns the pixel format that [`read`](Decoder::read) writes, which is the stored one.
    fn color(&self) -> Color;

    /// Returns the EXIF orientation, 1 to 8. Any other value means upright.
    fn orientation(&self) -> u8;

    /// Decodes all pixels into `to`, whose length is exactly their size in bytes.
    fn read(self: Box<Self>, to: &mut [u8]) -> Result<(), String>;

    /// Returns whether each pixel is stored as a single number of up to 8 bits: a palette index or
    /// a gray value.
    fn is_indexed(&self) -> bool {
        false
    }

    /// Decodes palette indices or gray values into `to`, one byte per pixel. Fails unless the image
    /// [is indexed](Decoder::is_indexed).
    fn read_indices(self: Box<Self>, _to: &mut [u8]) -> Result<(), String> {
        Err("the format does not store one number per pixel".to_owned())
    }
}

/// Format of a pixel: gray or RGB, optionally with alpha.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Color {
    /// Number of channels, 1 to 4.
    pub(super) channels: u8,
    pub(super) depth: Depth,
}

/// Type of the channel values, which are in native byte order.
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
    /// `None` once decoding has consumed it.
    pub(super) decoder: Option<AnyDecoder<'a>>,
    /// Bytes of memory needed to check values that only maps can read, or 0 for other images.
    pub(super) check_memory: u64,
    /// Size before the EXIF orientation is applied.
    pub(super) stored: Size,
    pub(super) orientation: Orientation,
}

impl Opened<'_> {
    /// Returns the size of the upright image.
    pub(super) fn size(&self) -> Size {
        self.orientation.size(self.stored)
    }

    /// Returns the bytes of memory needed to check values that only maps can read, or 0 for other
    /// images.
    pub(super) fn check_memory(&self) -> u64 {
        self.check_memory
    }

    /// Returns the orientation of the stored image.
    pub(super) fn orientation(&self) -> Orientation {
        self.orientation
    }
}
