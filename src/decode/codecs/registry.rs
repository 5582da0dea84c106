use std::sync::Arc;

use warpfeed_sources::format::{self, Format};

use super::unsupported::unsupported;
use crate::decode::jpegs::Jpegs;
use crate::decode::raw::Npy;
use crate::decode::{Codec, EncodedImage, Options, Size};
use crate::error::{Error, Result};
use crate::source::Sample;

/// The registry of codecs: the built-in ones and your own.
///
/// The first bytes of an image select its codec; file and field names do not matter. The
/// [table](crate::decode#what-is-read) lists what is supported and what is refused.
///
/// ```
/// use warpfeed::decode::{Codecs, Pixels, Rect};
///
/// # let mut jpeg = Vec::new();
/// # use jpeg_encoder::{ColorType, Encoder};
/// # Encoder::new(&mut jpeg, 90).encode(&[99; 96 * 64 * 3], 96, 64, ColorType::Rgb).unwrap();
/// let codecs = Codecs::new();
/// let mut original = codecs.open(&jpeg)?;
/// assert_eq!((original.size().width, original.size().height), (96, 64));
/// let mut pixels = Pixels::new();
/// original.decode(Rect::new(8, 8, 32, 32), &mut pixels)?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Clone)]
pub struct Codecs {
    /// Added codecs, the latest first.
    added: Vec<Arc<dyn Codec>>,
    built_in: Vec<Arc<dyn Codec>>,
    options: Options,
}

/// The built-in codecs, in order of precedence. A new codec needs one file, one line here, and one
/// line in the table of formats.
#[cfg_attr(not(feature = "formats"), allow(unused_variables))]
fn built_in(options: Options) -> Vec<Arc<dyn Codec>> {
    let own: [Arc<dyn Codec>; 2] = [Arc::new(Jpegs), Arc::new(Npy)];
    #[cfg(feature = "formats")]
    let own = own.into_iter().chain(images(options));
    own.into_iter().collect()
}

/// The codecs of the other formats.
#[cfg(feature = "formats")]
fn images(options: Options) -> impl Iterator<Item = Arc<dyn Codec>> {
    use crate::decode::image::{DECODERS, Image};
    DECODERS.into_iter().map(move |(format, open)| Arc::new(Image { format, open, options }) as _)
}

impl Default for Codecs {
    fn default() -> Self {
        Codecs { added: Vec::new(), built_in: built_in(Options::default()), options: Options::default() }
    }
}

impl std::fmt::Debug for Codecs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.all().map(|codec| codec.format().name).collect();
        f.debug_struct("Codecs").field("codecs", &names).field("options", &self.options).finish()
    }
}

impl Codecs {
    /// Creates a registry of the built-in codecs, with a limit of 2^28 pixels (16,384 by 16,384),
    /// which take 0.8 GB.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a registry of `codec` only, with the same limit.
    pub fn only(codec: impl Codec + 'static) -> Self {
        Codecs { added: vec![Arc::new(codec)], built_in: Vec::new(), options: Options::default() }
    }

    /// Adds a codec. It takes precedence over all others, so it can replace a built-in format.
    #[must_use]
    pub fn with(mut self, codec: impl Codec + 'static) -> Self {
        self.added.insert(0, Arc::new(codec));
        self
    }

    /// Sets the maximum number of pixels that an image may claim, for every format and codec. A
    /// larger image is an error before its pixels are allocated.
    #[must_use]
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.options.max_pixels = pixels;
        self.renewed()
    }

    /// Sets the color that transparent pixels are blended with, for the built-in codecs. By
    /// default alpha is dropped.
    #[must_use]
    pub fn background(mut self, color: [u8; 3]) -> Self {
        self.options.background = Some(color);
        self.renewed()
    }

    /// Sets whether the built-in codecs convert channels of more than 8 bits to 8 bits: the upper
    /// byte of 16 bits, and floats from 0 to 1. By default such an image is an error.
    #[must_use]
    pub fn convert_to_u8(mut self, converts: bool) -> Self {
        self.options.convert_to_u8 = converts;
        self.renewed()
    }

    /// Passes the options to the built-in codecs.
    fn renewed(mut self) -> Self {
        if !self.built_in.is_empty() {
            self.built_in = built_in(self.options);
        }
        self
    }

    /// Maximum number of pixels.
    pub(crate) fn most_pixels(&self) -> u64 {
        self.options.max_pixels
    }

    /// How images become RGB of 8 bits: the background behind transparent pixels, and whether
    /// channels of more than 8 bits are converted.
    #[cfg(feature = "pack")]
    pub(crate) fn conversion(&self) -> (Option<[u8; 3]>, bool) {
        (self.options.background, self.options.convert_to_u8)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn Codec>> {
        self.added.iter().chain(&self.built_in)
    }

    /// The formats of the added codecs.
    pub fn formats(&self) -> impl Iterator<Item = Format> {
        self.added.iter().map(|codec| codec.format())
    }

    /// Name and bytes of a sample's image: the first field that is [named
    /// after](format::is_image) a format of any of these codecs, or named `img` or `image`.
    pub fn image<'a>(&self, sample: &Sample<'a>) -> Option<(&'a str, &'a [u8])> {
        let is_image =
            |name: &str| format::is_image(name) || self.added.iter().any(|codec| codec.format().has_field(name));
        sample.bytes_named(is_image)
    }

    /// Opens an image, reading only its header.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if no codec matches the bytes, if the header
    /// is invalid, or if it claims 0 pixels or more than the limit.
    pub fn open<'a>(&'a self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        let codec = self.all().find(|codec| codec.matches(bytes)).ok_or_else(|| unsupported(bytes))?;
        let original = codec.open(bytes)?;
        let (Size { width, height }, area) = (original.size(), original.size().area());
        let name = codec.format().name;
        if area == 0 {
            return Err(Error::decode(format!("{name} header claims {width}x{height} pixels")));
        }
        if area > self.options.max_pixels {
            return Err(Error::decode(format!(
                "{name} header claims {width}x{height} = {area} pixels, the limit is {}",
                self.options.max_pixels
            )));
        }
        Ok(original.by(&**codec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpfeed_sources::format::FORMATS;

    #[test]
    fn every_format_has_one_codec_and_every_codec_a_format() {
        let mut codecs: Vec<_> = built_in(Options::default()).iter().map(|codec| codec.format().name).collect();
        let mut formats: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
        codecs.sort_unstable();
        formats.sort_unstable();
        assert_eq!(codecs, formats);
    }
}
