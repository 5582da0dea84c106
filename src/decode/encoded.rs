//! [`Codec`], [`EncodedImage`] and [`Job`], in one file because they refer to each other.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpfeed_jpeg::bitstream::{Bitstream, Grid};
use warpfeed_jpeg::{CompactCoefficients, Jpeg, Orientation};
use warpfeed_sources::format::Format;

#[cfg(feature = "video")]
use super::Options;
use super::{Condition, Info, JpegInfo, Oriented, Pixels, Rect, Size};
use crate::error::{Error, Result};

/// A decoder for images in one format. Reading the header is separate from decoding the pixels, so
/// that a crop can be chosen in between. [`Codecs`](super::Codecs) chooses the codec for an image,
/// and checks the size in the header.
///
/// [`Loader::codec`](crate::Loader::codec) adds a custom codec to a loader. Several threads call
/// the codec at the same time, so keep scratch memory in a `thread_local!` or in the `Pixels`.
///
/// ```
/// use warpfeed::decode::{Codec, Codecs, EncodedImage, Pixels, Rect, Size};
/// use warpfeed::format::Format;
/// use warpfeed::{Error, Result};
///
/// /// A format for gray images: a byte for the width, a byte for the height, and a byte per pixel.
/// struct Tiny;
///
/// impl Codec for Tiny {
///     fn format(&self) -> Format {
///         let matches = |bytes: &[u8]| bytes.starts_with(b"TINY");
///         Format { name: "tiny", field: "tiny", extensions: &["tiny"], matches }
///     }
///
///     fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
///         let (Some(&width), Some(&height)) = (bytes.get(4), bytes.get(5)) else {
///             return Err(Error::decode(format!("tiny header ends at byte {}", bytes.len())));
///         };
///         let size = Size::new(width.into(), height.into());
///         let needed = 6 + size.area();
///         if bytes.len() as u64 != needed {
///             return Err(Error::decode(format!("tiny has {} bytes, not {needed}", bytes.len())));
///         }
///         Ok(EncodedImage::new(bytes, size))
///     }
///
///     fn decode(&self, image: &mut EncodedImage<'_>, _region: Rect, out: &mut Pixels) -> Result<()> {
///         let gray = &image.bytes()[6..];
///         // Decodes the whole image. A codec that decodes only a region calls `set_origin`.
///         let pixels = out.reset(image.size()).as_chunks_mut().0;
///         pixels.iter_mut().zip(gray).for_each(|(rgb, &gray)| *rgb = [gray; 3]);
///         Ok(())
///     }
/// }
///
/// let codecs = Codecs::new().with(Tiny);
/// let mut pixels = Pixels::new();
/// let mut image = codecs.open(b"TINY\x02\x01\x09\x08")?;
/// image.decode(Rect::full(image.size()), &mut pixels)?;
/// assert_eq!(pixels.data(), [9, 9, 9, 8, 8, 8]);
/// # Ok::<(), Error>(())
/// ```
pub trait Codec: Send + Sync {
    /// Returns the format of the images. By default, the function [`Format::matches`] recognizes
    /// them. A codec for arbitrary bytes returns [`Format::any`].
    fn format(&self) -> Format;

    /// Returns whether `bytes` are an image for this codec. The default implementation calls
    /// [`Format::matches`].
    fn matches(&self, bytes: &[u8]) -> bool {
        (self.format().matches)(bytes)
    }

    /// Reads the header of an image that [matches](Codec::matches) this codec.
    ///
    /// The returned image must have the upright size, after the EXIF orientation has been applied.
    /// Do not allocate memory for pixels, because [`Codecs`](super::Codecs) has not checked the
    /// declared size yet.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the header is invalid. The message should
    /// state the byte offset of the error.
    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>>;

    /// Decodes at least `region`, in pixels of the upright image, into `out`. The caller ensures
    /// that the region is not empty and is inside the image. If the codec decodes only a part of
    /// the image, it must set the [origin](Pixels::set_origin) of `out` to the upper left corner of
    /// this part.
    ///
    /// The codec may decode more than the region, but the region must have the same pixels as when
    /// the whole image is decoded. Decoding may consume data that is stored in `image`, but
    /// decoding the image again must produce the same pixels.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the data cannot be decoded. The message
    /// should state the byte offset. After an error, the content of `out` is unspecified.
    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()>;

    /// Estimates, from the header alone, how many bytes are allocated to decode `region`, for
    /// pixels and scratch memory. The default is three bytes per pixel of the image.
    ///
    /// The loader uses the estimate to keep the memory of concurrent decoding within
    /// [`Batches::memory_plan`](crate::Batches::memory_plan). Unless memory is scarce, the loader
    /// rarely calls this method for images of less than about 350,000 pixels.
    fn decode_memory(&self, image: &EncodedImage<'_>, region: Rect) -> u64 {
        let _ = region;
        image.size().area().saturating_mul(3)
    }

    /// Decodes several images that this codec has opened, and stores the outcome of each job in
    /// [`Job::result`]. Override this method if images decode faster together, for example by
    /// interleaving independent streams. A failed job must not affect other jobs. The default
    /// implementation [runs](Job::run) one job after another.
    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        jobs.iter_mut().for_each(Job::run);
    }

    /// Reads a whole image, and returns a description of its damage, or `None` if it is not
    /// damaged. The default implementation decodes the image and returns `None`.
    ///
    /// # Errors
    /// If the whole image cannot be decoded.
    fn damage(&self, image: &mut EncodedImage<'_>) -> Result<Option<String>> {
        self.decode(image, Rect::full(image.size()), &mut Pixels::new()).map(|()| None)
    }
}

/// An image whose header has been read: its bytes, its size, and the codec's data from the header.
/// [`Codecs::open`](super::Codecs::open) returns this type.
pub struct EncodedImage<'a> {
    bytes: &'a [u8],
    size: Size,
    orientation: Orientation,
    pub(super) header: ParsedHeader<'a>,
    /// The codec that opened the image, or `None` if [`Codecs`](super::Codecs) did not open it.
    pub(super) codec: Option<&'a dyn Codec>,
}

/// The codec's data from the header. The data of a JPEG is not boxed, so that opening a JPEG does
/// not allocate memory.
#[allow(clippy::large_enum_variant)]
pub(super) enum ParsedHeader<'a> {
    None(PhantomData<&'a ()>),
    Jpeg(Jpeg<'a>),
    #[cfg(feature = "formats")]
    Image(super::decoder::OpenedImage<'a>),
    #[cfg(feature = "video")]
    Video(Options),
    Custom(Box<dyn Any + Send>),
}

impl<'a> EncodedImage<'a> {
    /// Creates an image with the upright size `size`, for [`Codec::open`].
    pub fn new(bytes: &'a [u8], size: Size) -> Self {
        Self::from_header(bytes, size, ParsedHeader::None(PhantomData))
    }

    pub(super) fn from_header(bytes: &'a [u8], size: Size, header: ParsedHeader<'a>) -> Self {
        let orientation = match &header {
            ParsedHeader::Jpeg(jpeg) => jpeg.orientation(),
            #[cfg(feature = "formats")]
            ParsedHeader::Image(opened) => opened.orientation(),
            #[cfg(feature = "video")]
            ParsedHeader::Video(_) => Orientation::default(),
            ParsedHeader::None(_) | ParsedHeader::Custom(_) => Orientation::default(),
        };
        EncodedImage { bytes, size, orientation, header, codec: None }
    }

    /// Sets the EXIF orientation, from 1 to 8, that the [`Codec`] applies when it decodes the
    /// image. Annotations of the stored pixels are transformed in the same way.
    #[must_use]
    pub fn with_orientation(mut self, exif: u8) -> Self {
        self.orientation = Orientation::new(exif);
        self
    }

    /// Attaches data that the [`Codec`] has read from the header and needs for decoding.
    #[must_use]
    pub fn with_header(mut self, header: impl Any + Send) -> Self {
        self.header = ParsedHeader::Custom(Box::new(header));
        self
    }

    /// Returns the value passed to [`with_header`](EncodedImage::with_header), if it has the type
    /// `H`.
    pub fn header<H: Any>(&self) -> Option<&H> {
        match &self.header {
            ParsedHeader::Custom(header) => header.downcast_ref(),
            _ => None,
        }
    }

    pub(super) fn with_codec(mut self, codec: &'a dyn Codec) -> Self {
        self.codec = Some(codec);
        self
    }

    /// Returns all bytes of the encoded image.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the size of the upright image.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the upright size and the EXIF orientation of the image.
    pub fn oriented(&self) -> Oriented {
        Oriented::with_orientation(self.size, self.orientation)
    }

    /// Returns the codec's [memory estimate](Codec::decode_memory) for decoding `region`, in bytes.
    /// Returns 0 if a codec has opened the image instead of [`Codecs`](super::Codecs).
    pub fn decode_memory(&self, region: Rect) -> u64 {
        self.codec.map_or(0, |codec| codec.decode_memory(self, region))
    }

    /// Returns true if successful decoding of the whole image guarantees that
    /// [`check`](EncodedImage::check) finds no damage. Returns false for formats for which this is
    /// not certain, such as custom formats.
    #[cfg(feature = "pack")]
    pub(crate) fn is_checked_by_decoding(&self) -> bool {
        #[cfg(feature = "formats")]
        let is_image = matches!(self.header, ParsedHeader::Image(_));
        #[cfg(not(feature = "formats"))]
        let is_image = false;
        is_image || self.is_video()
    }

    pub(crate) fn check_memory(&self) -> u64 {
        // Eight bytes per pixel hold the coefficients of up to four components.
        self.decode_memory(Rect::full(self.size)).max(self.size.area().saturating_mul(8))
    }

    /// Decodes at least `region`, in pixels of the upright image, into `out`. [`Pixels::origin`] is
    /// the upper left corner of the decoded area.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the region is empty or not inside the
    /// image, or if the data cannot be decoded. [`ErrorKind::Memory`](crate::ErrorKind::Memory) if
    /// memory runs out. [`ErrorKind::Config`](crate::ErrorKind::Config) if a codec has opened the
    /// image instead of [`Codecs`](super::Codecs). After an error, the content of `out` is
    /// unspecified.
    pub fn decode(&mut self, region: Rect, out: &mut Pixels) -> Result<()> {
        region.check_within(self.size).map_err(crate::error::from_jpeg)?;
        self.codec()?.decode(self, region, out)
    }

    /// Reads the whole image, and reports damage, like [`check()`](super::check()).
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a codec has opened the image instead of
    /// [`Codecs`](super::Codecs).
    pub fn check(&mut self) -> Result<Condition> {
        Ok(match self.codec()?.damage(self) {
            Ok(None) => Condition::Sound,
            Ok(Some(damage)) => Condition::Tolerated(damage),
            Err(e) => Condition::Damaged(e),
        })
    }

    pub(crate) fn refuse_damage(&mut self) -> Result<()> {
        match self.check()? {
            Condition::Sound => Ok(()),
            Condition::Tolerated(damage) => Err(Error::decode(format!("{damage}: rejected, because strict is set"))),
            Condition::Damaged(e) => Err(e),
        }
    }

    /// Returns the information from the header. [`Info::format`] is empty if a codec has opened the
    /// image instead of [`Codecs`](super::Codecs).
    pub fn info(&self) -> Info {
        let jpeg = match &self.header {
            ParsedHeader::Jpeg(jpeg) => Some(JpegInfo::from_jpeg(jpeg)),
            _ => None,
        };
        let format = self.codec.map_or("", |codec| codec.format().name);
        Info { format, size: self.size, oriented: self.oriented(), jpeg }
    }

    /// Copies the image without reading its header again. Returns `None` if the codec's data from
    /// the header cannot be copied.
    pub(crate) fn try_clone(&self) -> Option<Self> {
        let header = match &self.header {
            ParsedHeader::Jpeg(jpeg) => ParsedHeader::Jpeg(jpeg.clone()),
            ParsedHeader::None(_) => ParsedHeader::None(PhantomData),
            _ => return None,
        };
        let EncodedImage { bytes, size, orientation, codec, .. } = *self;
        Some(EncodedImage { bytes, size, orientation, header, codec })
    }

    /// Estimates the cost of decoding `region`. Costs are comparable only between regions of the
    /// same image.
    pub(crate) fn decode_cost(&self, region: Rect) -> u64 {
        match &self.header {
            ParsedHeader::Jpeg(jpeg) => jpeg.decode_cost(region),
            _ => self.size.area(),
        }
    }

    /// Makes later calls of [`decode`](EncodedImage::decode) use `coefficients` instead of the
    /// bytes of the JPEG. Has no effect on images in other formats.
    pub(crate) fn set_coefficients(&mut self, coefficients: Arc<CompactCoefficients>) {
        if let ParsedHeader::Jpeg(jpeg) = &mut self.header {
            jpeg.set_coefficients(coefficients);
        }
    }

    pub(crate) fn coefficients(&self) -> Option<&Arc<CompactCoefficients>> {
        match &self.header {
            ParsedHeader::Jpeg(jpeg) => jpeg.coefficients(),
            _ => None,
        }
    }

    pub(crate) fn is_jpeg(&self) -> bool {
        matches!(self.header, ParsedHeader::Jpeg(_))
    }

    pub(crate) fn is_video(&self) -> bool {
        #[cfg(feature = "video")]
        return matches!(self.header, ParsedHeader::Video(_));
        #[cfg(not(feature = "video"))]
        false
    }

    /// Returns whether the image has a format that a device may be able to process: a device can
    /// decode most JPEGs, and can convert most video frames to RGB after a worker has decoded them.
    pub(crate) fn suits_device(&self) -> bool {
        self.is_jpeg() || self.is_video()
    }

    /// Returns whether the image is a JPEG without restart markers that is not decoded from cached
    /// coefficients. Its data must be decoded from the beginning, even for a crop.
    pub(crate) fn is_plain_jpeg(&self) -> bool {
        let is_plain = |jpeg: &Jpeg<'_>| jpeg.restart_interval() == 0 && jpeg.coefficients().is_none();
        matches!(&self.header, ParsedHeader::Jpeg(jpeg) if is_plain(jpeg))
    }

    /// Returns whether several threads can share the decoding of the image.
    pub(crate) fn is_divisible(&self) -> bool {
        matches!(&self.header, ParsedHeader::Jpeg(jpeg) if jpeg.is_divisible())
    }

    /// Extracts the data that a device needs to decode `region` into `out`, and returns the layout
    /// of the image. Returns `None` if devices cannot decode the image, if the data would exceed
    /// `max_bytes`, or in the other cases of [`Bitstream::extract`].
    pub(crate) fn bitstream(&self, region: Rect, max_bytes: usize, out: &mut Bitstream) -> Option<Grid> {
        let ParsedHeader::Jpeg(jpeg) = &self.header else { return None };
        out.extract(jpeg, region, max_bytes)
    }

    pub(crate) fn bitstream_memory(&self, region: Rect, max_bytes: usize) -> usize {
        match &self.header {
            ParsedHeader::Jpeg(jpeg) => Bitstream::memory_for(jpeg, region, max_bytes),
            _ => 0,
        }
    }

    fn codec(&self) -> Result<&'a dyn Codec> {
        self.codec.ok_or_else(|| {
            Error::config("the image was opened with a codec instead of a registry: open it with `Codecs::open`")
        })
    }
}

impl std::fmt::Debug for EncodedImage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("bytes", &self.bytes.len())
            .field("size", &self.size)
            .field("codec", &self.codec.map(|codec| codec.format().name))
            .finish_non_exhaustive()
    }
}

/// An image and the region to decode, for [`decode_group`](super::decode_group).
#[derive(Debug)]
pub struct Job<'a> {
    /// The image to decode.
    pub image: EncodedImage<'a>,
    /// The region to decode, in pixels of the upright image.
    pub region: Rect,
    /// The buffer that receives the pixels.
    pub out: &'a mut Pixels,
    /// The result of decoding. `Ok` until the job has run.
    pub result: Result<()>,
    /// The time that decoding took, or `None` if it was not measured for this image alone. It is
    /// not measured if the codec decodes images in groups.
    pub(crate) time: Option<Duration>,
    /// Whether idle threads of the current pool may decode parts of the image.
    pub(crate) is_divided: bool,
    /// Maximum size of `coefficients` in bytes. If 0, no coefficients are stored.
    pub(crate) max_coefficient_bytes: usize,
    /// The coefficients of an undamaged JPEG that was decoded completely, if they do not exceed
    /// `max_coefficient_bytes`.
    pub(crate) coefficients: Option<CompactCoefficients>,
}

impl<'a> Job<'a> {
    /// Creates a job that decodes `region` of `image` into `out`.
    pub fn new(image: EncodedImage<'a>, region: Rect, out: &'a mut Pixels) -> Self {
        Job {
            image,
            region,
            out,
            result: Ok(()),
            time: None,
            is_divided: false,
            max_coefficient_bytes: 0,
            coefficients: None,
        }
    }

    /// Decodes the image separately from other jobs, measures the time, and sets
    /// [`result`](Job::result).
    pub fn run(&mut self) {
        self.run_with(|image, region, out| image.decode(region, out));
    }

    pub(super) fn run_with(&mut self, decode: impl FnOnce(&mut EncodedImage<'a>, Rect, &mut Pixels) -> Result<()>) {
        let start_time = Instant::now();
        let region_check = self.region.check_within(self.image.size()).map_err(crate::error::from_jpeg);
        self.result = region_check.and_then(|()| decode(&mut self.image, self.region, self.out));
        self.time = Some(start_time.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_images_are_cheap_to_move() {
        assert!(size_of::<EncodedImage<'_>>() <= 664, "{}", size_of::<EncodedImage<'_>>());
    }
}
