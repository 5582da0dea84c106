//! Codecs, images and jobs. These three types share a file because they refer to each other: a
//! codec opens an image, the image refers to its codec, and the codec decodes several images as
//! jobs.

use std::any::Any;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use warpfeed_jpeg::bitstream::{Bitstream, Grid};
use warpfeed_jpeg::{Jpeg, Orientation};
use warpfeed_sources::format::Format;

use super::{Condition, Info, JpegInfo, Oriented, Pixels, Rect, Size};
use crate::error::{Error, Result};

/// Decodes one image format. A codec first reads an image's header, and later decodes the pixels.
///
/// [`Codecs`](super::Codecs) chooses the codec of an image and checks the image's size. Opening
/// reads only the header, so the crop can be chosen before anything is decoded.
///
/// [`Loader::codec`](crate::Loader::codec) adds a custom codec to a loader. Many threads call the
/// codec concurrently. Keep scratch memory in a `thread_local!` or in the `Pixels`.
///
/// ```
/// use warpfeed::decode::{Codec, Codecs, EncodedImage, Pixels, Rect, Size};
/// use warpfeed::format::Format;
/// use warpfeed::{Error, Result};
///
/// /// Gray images: one byte each for width and height, then one byte per pixel.
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
///         // The whole image, whatever the region. Codecs that decode a part call `place`.
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
    /// Returns the format, which also defines how to recognize an image. A codec for arbitrary
    /// bytes returns [`Format::any`].
    fn format(&self) -> Format;

    /// Returns whether this codec decodes these bytes. By default, the format decides.
    fn matches(&self, bytes: &[u8]) -> bool {
        (self.format().matches)(bytes)
    }

    /// Opens an image that [matches](Codec::matches) this codec, by reading only its header.
    ///
    /// The size of the returned image is its upright size, after the EXIF orientation has been
    /// applied. Do not allocate pixels here: a header can claim any size, and
    /// [`Codecs`](super::Codecs) checks it afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the header is invalid. The message should
    /// give the byte offset of the fault.
    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>>;

    /// Decodes at least `region` into `out`. This codec has opened the image. [`Pixels::origin`] is
    /// the top-left corner of the decoded area. The region is in pixels of the upright image, is
    /// not empty, and is inside the image.
    ///
    /// Inside the region, the pixels must equal those of a full decode. The codec chooses how much
    /// it decodes around the region. Decoding may consume data that is stored in the image, but
    /// decoding again must produce the same pixels.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the data cannot be decoded. The message
    /// should give the byte offset. The content of `out` is then unspecified.
    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()>;

    /// Estimates, from the header alone, how many bytes of memory decoding `region` needs,
    /// including the decoded pixels and scratch memory. The default is three bytes per pixel of the
    /// image.
    ///
    /// A loader uses the estimate to keep concurrent decoding within
    /// [`Batches::memory_plan`](crate::Batches::memory_plan). For images of at most 350,000 pixels,
    /// the loader calls this method only if memory is scarce.
    fn memory(&self, image: &EncodedImage<'_>, region: Rect) -> u64 {
        let _ = region;
        image.size().area().saturating_mul(3)
    }

    /// Decodes several images that this codec opened. Override this method if decoding images
    /// together is faster, for example by interleaving independent streams. Each job has its own
    /// result, and a failed job must not affect the others.
    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        jobs.iter_mut().for_each(Job::run);
    }

    /// Reads a whole image and describes its damage, or returns `None` if there is none. The
    /// default implementation only decodes the image and reports no damage.
    ///
    /// # Errors
    /// If the whole image cannot be decoded.
    fn damage(&self, image: &mut EncodedImage<'_>) -> Result<Option<String>> {
        self.decode(image, Rect::full(image.size()), &mut Pixels::new()).map(|()| None)
    }
}

/// An opened image: its bytes, its size, and whatever its codec has read from the header.
///
/// [`Codecs::open`](super::Codecs::open) returns this handle. All information about the image comes
/// from the handle, so the header is read only once.
pub struct EncodedImage<'a> {
    bytes: &'a [u8],
    size: Size,
    orientation: Orientation,
    pub(super) header: Header<'a>,
    /// The image's codec; `None` until a registry sets it.
    pub(super) codec: Option<&'a dyn Codec>,
}

/// The data that a codec has read from a header and needs again to decode.
///
/// The header of a JPEG is stored inline, so that opening a JPEG does not allocate.
#[allow(clippy::large_enum_variant)]
pub(super) enum Header<'a> {
    /// No data. The marker uses `'a`, which would be unused in a build without the `Image` variant.
    None(PhantomData<&'a ()>),
    Jpeg(Jpeg<'a>),
    #[cfg(feature = "formats")]
    Image(super::decoder::Opened<'a>),
    Own(Box<dyn Any + Send>),
}

impl<'a> EncodedImage<'a> {
    /// Creates an image with the upright size `size`. A [`Codec`] calls this function with the
    /// `bytes` that it opens.
    pub fn new(bytes: &'a [u8], size: Size) -> Self {
        Self::with(bytes, size, Header::None(PhantomData))
    }

    pub(super) fn with(bytes: &'a [u8], size: Size, header: Header<'a>) -> Self {
        let orientation = match &header {
            Header::Jpeg(jpeg) => jpeg.orientation(),
            #[cfg(feature = "formats")]
            Header::Image(opened) => opened.orientation(),
            Header::None(_) | Header::Own(_) => Orientation::default(),
        };
        EncodedImage { bytes, size, orientation, header, codec: None }
    }

    /// Sets the EXIF orientation, 1 to 8, that the [`Codec`] applies to make the image upright.
    /// Annotations made on the stored pixels are then transformed in the same way.
    #[must_use]
    pub fn with_orientation(mut self, exif: u8) -> Self {
        self.orientation = Orientation::new(exif);
        self
    }

    /// Attaches data that the [`Codec`] has read from the header and needs for decoding.
    #[must_use]
    pub fn with_header(mut self, header: impl Any + Send) -> Self {
        self.header = Header::Own(Box::new(header));
        self
    }

    /// Returns the value passed to [`with_header`](EncodedImage::with_header), if it is an `H`.
    pub fn header<H: Any>(&self) -> Option<&H> {
        match &self.header {
            Header::Own(header) => header.downcast_ref(),
            _ => None,
        }
    }

    pub(super) fn by(mut self, codec: &'a dyn Codec) -> Self {
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

    /// Returns the upright size, and the EXIF orientation that made the image upright.
    pub fn oriented(&self) -> Oriented {
        Oriented::with(self.size, self.orientation)
    }

    /// Returns the codec's [estimate](Codec::memory) of the memory that decoding `region` needs, in
    /// bytes, including the decoded pixels and scratch memory.
    pub fn memory(&self, region: Rect) -> u64 {
        self.codec.map_or(0, |codec| codec.memory(self, region))
    }

    /// Estimates how many bytes of memory [`check`](EncodedImage::check) needs.
    pub(crate) fn check_memory(&self) -> u64 {
        // Either all pixels, or the coefficients of up to four components: eight bytes per pixel.
        self.memory(Rect::full(self.size)).max(self.size.area().saturating_mul(8))
    }

    /// Decodes at least `region` into `out`. The region is in pixels of the upright image.
    /// [`Pixels::origin`] is the top-left corner of the decoded area.
    ///
    /// # Errors
    /// If the region is empty or not inside the image.
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the data cannot be decoded; the message
    /// gives the position. The content of `out` is then unspecified.
    pub fn decode(&mut self, region: Rect, out: &mut Pixels) -> Result<()> {
        region.within(self.size).map_err(crate::error::of_jpeg)?;
        self.codec()?.decode(self, region, out)
    }

    /// Reads the whole image and reports its damage, like [`check()`](super::check()).
    pub fn check(&mut self) -> Condition {
        match self.codec().and_then(|codec| codec.damage(self)) {
            Ok(None) => Condition::Sound,
            Ok(Some(damage)) => Condition::Tolerated(damage),
            Err(e) => Condition::Damaged(e),
        }
    }

    /// Returns the information that the header contains.
    pub fn info(&self) -> Info {
        let jpeg = match &self.header {
            Header::Jpeg(jpeg) => Some(JpegInfo::of(jpeg)),
            _ => None,
        };
        let format = self.codec.map_or("", |codec| codec.format().name);
        Info { format, size: self.size, oriented: self.oriented(), jpeg }
    }

    /// Returns a second handle to this image, or `None` if creating one would require reading the
    /// header again.
    pub(crate) fn again(&self) -> Option<Self> {
        let header = match &self.header {
            Header::Jpeg(jpeg) => Header::Jpeg(jpeg.clone()),
            Header::None(_) => Header::None(PhantomData),
            _ => return None,
        };
        let EncodedImage { bytes, size, orientation, codec, .. } = *self;
        Some(EncodedImage { bytes, size, orientation, header, codec })
    }

    /// Estimates the cost of decoding `region`, relative to other regions of this image.
    pub(crate) fn cost(&self, region: Rect) -> u64 {
        match &self.header {
            Header::Jpeg(jpeg) => jpeg.cost(region),
            // Other codecs decode the whole image.
            _ => self.size.area(),
        }
    }

    /// Returns whether the image is a JPEG without restart markers, whose crops cannot be decoded
    /// independently of each other.
    pub(crate) fn is_plain_jpeg(&self) -> bool {
        matches!(&self.header, Header::Jpeg(jpeg) if jpeg.restart_interval() == 0)
    }

    /// Extracts the data that a device needs to decode `region`. Returns `None` if devices cannot
    /// decode this image, or if the data exceeds `most` bytes.
    pub(crate) fn bitstream(&self, region: Rect, most: usize, to: &mut Bitstream) -> Option<Grid> {
        let Header::Jpeg(jpeg) = &self.header else { return None };
        to.take(jpeg, region, most)
    }

    /// Returns an upper bound on the memory that [`bitstream`](EncodedImage::bitstream) uses, in
    /// bytes.
    pub(crate) fn bitstream_memory(&self, region: Rect, most: usize) -> usize {
        match &self.header {
            Header::Jpeg(jpeg) => Bitstream::memory_for(jpeg, region, most),
            _ => 0,
        }
    }

    fn codec(&self) -> Result<&'a dyn Codec> {
        self.codec.ok_or_else(|| Error::decode("the image was opened by a codec directly: open it with `Codecs::open`"))
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

/// One image of a [`decode_group`](super::decode_group) call, with the region to decode.
#[derive(Debug)]
pub struct Job<'a> {
    /// The image to decode.
    pub image: EncodedImage<'a>,
    /// The region that must be decoded, in pixels of the upright image.
    pub region: Rect,
    /// The buffer that receives the pixels.
    pub out: &'a mut Pixels,
    /// The result of decoding.
    pub result: Result<()>,
    /// Time that decoding took, if the image was not decoded together with others.
    pub(crate) time: Option<Duration>,
}

impl<'a> Job<'a> {
    /// Creates a job.
    pub fn new(image: EncodedImage<'a>, region: Rect, out: &'a mut Pixels) -> Self {
        Job { image, region, out, result: Ok(()), time: None }
    }

    /// Decodes only this job, and records how long decoding took.
    pub fn run(&mut self) {
        let start = Instant::now();
        self.result = self.image.decode(self.region, self.out);
        self.time = Some(start.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group moves up to eight images, so the type must be cheap to move.
    #[test]
    fn an_opened_image_is_small_enough_to_be_moved() {
        assert!(size_of::<EncodedImage<'_>>() <= 656, "{}", size_of::<EncodedImage<'_>>());
    }
}
