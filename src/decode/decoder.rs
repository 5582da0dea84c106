//! What the decoders of formats other than JPEG have in common.

use warpfeed_jpeg::Orientation;

use super::Size;

/// Opens a file: reads the header of bytes that match the format. The second argument limits the
/// bytes of the decoder's own buffers.
pub(super) type Open = for<'a> fn(&'a [u8], usize) -> Result<AnyDecoder<'a>, String>;

/// A file whose header has been read.
pub(super) type AnyDecoder<'a> = Box<dyn Decoder + Send + 'a>;

/// An image of one format.
pub(super) trait Decoder {
    /// Size of the stored image. A side may be 0.
    fn size(&self) -> Size;

    /// The stored pixels, in which [`read`](Decoder::read) writes them.
    fn color(&self) -> Color;

    /// The EXIF orientation: 1 to 8. All other values mean upright.
    fn orientation(&self) -> u8;

    /// Decodes all pixels into `to`, which has their size.
    fn read(self: Box<Self>, to: &mut [u8]) -> Result<(), String>;

    /// Whether a pixel is stored as one number of up to 8 bits: an index of the palette, or gray.
    fn is_indexed(&self) -> bool {
        false
    }

    /// Decodes these numbers into `to`, which has one byte for each pixel. Only a decoder that
    /// [is indexed](Decoder::is_indexed) can.
    fn read_indices(self: Box<Self>, _to: &mut [u8]) -> Result<(), String> {
        Err("the pixels are not stored as one number".to_owned())
    }
}

/// The values of a pixel: gray or red, green and blue, then perhaps alpha.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Color {
    /// Number of channels, 1 to 4.
    pub(super) channels: u8,
    pub(super) depth: Depth,
}

/// Type of the values, in native byte order.
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

    /// Bytes of a pixel.
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
    /// Consumed by decoding.
    pub(super) decoder: Option<AnyDecoder<'a>>,
    /// Bytes that a check of the values takes if only maps read them, else 0.
    pub(super) check_memory: u64,
    /// Size before the image is turned.
    pub(super) stored: Size,
    pub(super) orientation: Orientation,
}

impl Opened<'_> {
    /// Size of the upright image.
    pub(super) fn size(&self) -> Size {
        self.orientation.size(self.stored)
    }

    /// Bytes that a check of the values takes if only maps read them, else 0.
    pub(super) fn check_memory(&self) -> u64 {
        self.check_memory
    }

    /// Orientation of the stored image.
    pub(super) fn orientation(&self) -> Orientation {
        self.orientation
    }
}
