use crate::decode::image::Image;
use crate::decode::picture::Header;
use crate::decode::{Codec, Options, Picture, Pixels, Rect, Stored};
use crate::error::{Error, Result};
use crate::format::Format;

/// Memory per pixel for the decoder and the conversion to RGB, besides the RGB output: eight bytes,
/// for four channels of 16 bits.
const BESIDE: u64 = 8;

/// Bytes that the values of a checked picture may take, for each pixel of the largest allowed one.
const MOST_STORED: u64 = 32;

/// Always decodes the whole picture.
impl Codec for Image {
    fn format(&self) -> Format {
        self.format
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<Picture<'a>> {
        self.read(bytes).map(|opened| Picture::with(bytes, opened.size(), Header::Image(opened)))
    }

    fn memory(&self, picture: &Picture<'_>, _region: Rect) -> u64 {
        picture.size().area().saturating_mul(3 + BESIDE)
    }

    fn decode(&self, picture: &mut Picture<'_>, _region: Rect, out: &mut Pixels) -> Result<()> {
        self.whole(picture, self.options, out)
    }

    /// Values that only maps read are no damage.
    fn damage(&self, picture: &mut Picture<'_>) -> Result<Option<String>> {
        let options = Options { to_8_bits: true, ..self.options };
        self.whole(picture, options, &mut Pixels::new()).or_else(|e| {
            let stored = Stored::open(picture.bytes()).ok().filter(|_| !self.converts(picture.bytes()));
            // A header can claim any number of channels.
            let limit = self.options.max_pixels.saturating_mul(MOST_STORED);
            stored.filter(|stored| stored.memory() <= limit).ok_or(e)?.read(&mut Vec::new())
        })?;
        Ok(None)
    }
}

impl Image {
    fn whole(&self, picture: &mut Picture<'_>, options: Options, out: &mut Pixels) -> Result<()> {
        let bytes = picture.bytes();
        let to = out.reset(picture.size());
        match &mut picture.header {
            Header::Image(opened) => self.decode(bytes, opened, options, to),
            _ => Err(Error::decode(format!("the {} codec was given a picture of another codec", self.format.name))),
        }
    }
}
