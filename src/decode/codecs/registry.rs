use std::sync::Arc;

use warpfeed_sources::format::{self, Format};

use super::unsupported::unsupported;
use crate::decode::jpegs::JpegCodec;
use crate::decode::raw::NpyCodec;
#[cfg(feature = "video")]
use crate::decode::video::VideoFrameCodec;
use crate::decode::{Codec, EncodedImage, Options, Size};
use crate::error::{Error, Result};
use crate::source::Sample;

/// A registry of the built-in codecs and custom codecs. The bytes of an image determine its codec:
/// built-in codecs recognize the first bytes. The name of the file or field does not matter. See
/// [Supported formats](crate::decode#supported-formats) for the built-in codecs.
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
    /// The custom codecs, most recently added first.
    custom: Vec<Arc<dyn Codec>>,
    built_in: Vec<Arc<dyn Codec>>,
    options: Options,
}

/// Returns the built-in codecs in order of precedence.
#[cfg_attr(not(any(feature = "formats", feature = "video")), allow(unused_variables))]
fn built_in_codecs(options: Options) -> Vec<Arc<dyn Codec>> {
    let codecs: [Arc<dyn Codec>; 2] = [Arc::new(JpegCodec), Arc::new(NpyCodec)];
    #[cfg(feature = "formats")]
    let codecs = codecs.into_iter().chain(image_codecs(options));
    #[cfg(feature = "video")]
    let codecs = codecs.into_iter().chain([Arc::new(VideoFrameCodec(options)) as Arc<dyn Codec>]);
    codecs.into_iter().collect()
}

#[cfg(feature = "formats")]
fn image_codecs(options: Options) -> impl Iterator<Item = Arc<dyn Codec>> {
    use crate::decode::image::{DECODERS, ImageCodec};
    DECODERS.into_iter().map(move |(format, open)| Arc::new(ImageCodec { format, open, options }) as _)
}

impl Default for Codecs {
    fn default() -> Self {
        Codecs { custom: Vec::new(), built_in: built_in_codecs(Options::default()), options: Options::default() }
    }
}

impl std::fmt::Debug for Codecs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.all().map(|codec| codec.format().name).collect();
        f.debug_struct("Codecs").field("codecs", &names).field("options", &self.options).finish()
    }
}

impl Codecs {
    /// Creates a registry of the built-in codecs. Images may have up to 2^28 pixels (16,384 by
    /// 16,384), which take 0.8 GB when decoded to RGB.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a registry of only `codec`, with the same limit on pixels as [`new`](Codecs::new).
    pub fn only(codec: impl Codec + 'static) -> Self {
        Codecs { custom: vec![Arc::new(codec)], built_in: Vec::new(), options: Options::default() }
    }

    /// Adds a codec. It takes precedence over the built-in codecs and over all codecs that were
    /// added earlier.
    #[must_use]
    pub fn with(mut self, codec: impl Codec + 'static) -> Self {
        self.custom.insert(0, Arc::new(codec));
        self
    }

    /// Sets the maximum number of pixels that the header of an image may claim, for all formats and
    /// codecs. [`open`](Codecs::open) rejects larger images before memory for their pixels is
    /// allocated.
    #[must_use]
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.options.max_pixels = pixels;
        self.rebuild()
    }

    /// Sets the color with which the built-in codecs blend transparent pixels. By default, the
    /// codecs drop the alpha channel.
    #[must_use]
    pub fn background(mut self, color: [u8; 3]) -> Self {
        self.options.background = Some(color);
        self.rebuild()
    }

    /// Sets whether images with 16-bit or float channels are converted. A 16-bit value is reduced
    /// to its upper byte, and a float from 0 to 1 becomes a value from 0 to 255. By default, such
    /// images are rejected. Video frames with more than 8 bits are converted in any case.
    #[must_use]
    pub fn convert_to_u8(mut self, converts: bool) -> Self {
        self.options.convert_to_u8 = converts;
        self.rebuild()
    }

    /// Sets the index of the GPU that decodes the videos that the CPU cannot decode.
    #[cfg(feature = "_device")]
    #[must_use]
    pub(crate) fn gpu(mut self, gpu: usize) -> Self {
        self.options.gpu = gpu;
        self.rebuild()
    }

    fn rebuild(mut self) -> Self {
        if !self.built_in.is_empty() {
            self.built_in = built_in_codecs(self.options);
        }
        self
    }

    pub(crate) fn pixel_limit(&self) -> u64 {
        self.options.max_pixels
    }

    /// Returns the background color, and whether channels with more than 8 bits are converted.
    #[cfg(feature = "pack")]
    pub(crate) fn conversion(&self) -> (Option<[u8; 3]>, bool) {
        (self.options.background, self.options.convert_to_u8)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn Codec>> {
        self.custom.iter().chain(&self.built_in)
    }

    /// Returns the formats of the custom codecs.
    pub fn formats(&self) -> impl Iterator<Item = Format> {
        self.custom.iter().map(|codec| codec.format())
    }

    /// Returns the name and the bytes of a sample's image, or `None` if the sample has no image.
    /// The image is the first field that is called `img` or `image`, or whose name belongs to a
    /// built-in format ([`format::is_image_field`]) or to the format of a custom codec.
    pub fn image<'a>(&self, sample: &Sample<'a>) -> Option<(&'a str, &'a [u8])> {
        let is_image =
            |name: &str| format::is_image_field(name) || self.custom.iter().any(|codec| codec.format().has_field(name));
        sample.bytes_named(is_image)
    }

    /// Opens an image by reading its header.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if no codec matches the bytes, if the header
    /// is invalid, or if the header declares an empty image or more pixels than the limit.
    pub fn open<'a>(&'a self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        let codec = self.all().find(|codec| codec.matches(bytes)).ok_or_else(|| unsupported(bytes))?;
        let original = codec.open(bytes)?;
        let (Size { width, height }, area) = (original.size(), original.size().area());
        let name = codec.format().name;
        if area == 0 {
            return Err(Error::decode(format!("the {name} header declares an empty image of {width}x{height} pixels")));
        }
        if area > self.options.max_pixels {
            return Err(Error::decode(format!(
                "{name} header claims {width}x{height} = {area} pixels, but the limit is {}",
                self.options.max_pixels
            )));
        }
        Ok(original.with_codec(&**codec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpfeed_sources::format::FORMATS;

    #[test]
    fn every_format_has_exactly_one_codec() {
        let mut codecs: Vec<_> = built_in_codecs(Options::default()).iter().map(|codec| codec.format().name).collect();
        let mut formats: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
        codecs.sort_unstable();
        formats.sort_unstable();
        assert_eq!(codecs, formats);
    }
}
