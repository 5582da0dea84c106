use warpfeed_sources::format::Format;

use crate::decode::encoded::Header;
use crate::decode::image::Image;
use crate::decode::{Codec, EncodedImage, Options, Pixels, Rect, Stored};
use crate::error::{Error, Result};

/// Bytes of scratch memory per pixel for decoding and conversion to RGB, in addition to the RGB
/// output: enough for four 16-bit channels.
const BESIDE: u64 = 8;

/// Maximum number of bytes that `check` decodes, per pixel of the largest allowed image. A header
/// can claim any number of channels; this limit bounds how long a check can take.
const MOST_STORED: u64 = 32;

/// Decodes the whole image, whatever the requested region.
impl Codec for Image {
    fn format(&self) -> Format {
        self.format
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        self.read(bytes).map(|opened| EncodedImage::with(bytes, opened.size(), Header::Image(opened)))
    }

    fn memory(&self, image: &EncodedImage<'_>, _region: Rect) -> u64 {
        let values = match &image.header {
            Header::Image(opened) => opened.check_memory(),
            _ => 0,
        };
        image.size().area().saturating_mul(3 + BESIDE).max(values)
    }

    fn decode(&self, image: &mut EncodedImage<'_>, _region: Rect, out: &mut Pixels) -> Result<()> {
        self.whole(image, self.options, out)
    }

    /// Does not count values that only maps can read, such as six bands, as damage.
    fn damage(&self, image: &mut EncodedImage<'_>) -> Result<Option<String>> {
        if let Some(stored) = self.only_of_maps(image) {
            stored?.check()?;
            return Ok(None);
        }
        let options = Options { convert_to_u8: true, ..self.options };
        self.whole(image, options, &mut Pixels::new())?;
        Ok(None)
    }
}

impl Image {
    /// Returns the stored values of an image that only maps can read, or an error if they exceed
    /// the limits. The largest strip or tile may take as much memory as the largest allowed image.
    fn only_of_maps<'a>(&self, image: &EncodedImage<'a>) -> Option<Result<Stored<'a>>> {
        let unread = matches!(&image.header, Header::Image(opened) if opened.check_memory() > 0);
        let stored = Stored::open(image.bytes()).ok().filter(|_| unread)?;
        let (all, part) = (stored.bytes(), stored.check_memory());
        for (what, bytes, each) in [("values", all, MOST_STORED), ("a strip or tile", part, 3 + BESIDE)] {
            let limit = self.options.max_pixels.saturating_mul(each);
            if bytes > limit {
                let name = self.format.name;
                return Some(Err(Error::decode(format!(
                    "{name} header claims {what} of {bytes} bytes, the limit is {limit}"
                ))));
            }
        }
        Some(Ok(stored))
    }

    fn whole(&self, image: &mut EncodedImage<'_>, options: Options, out: &mut Pixels) -> Result<()> {
        let bytes = image.bytes();
        let to = out.reset(image.size());
        match &mut image.header {
            Header::Image(opened) => self.decode(bytes, opened, options, to),
            _ => Err(Error::decode(format!("the {} codec was given an image of another codec", self.format.name))),
        }
    }
}
