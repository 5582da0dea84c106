//! Codecs, images and jobs. A codec opens an image, the image refers to its codec, and the
//! codec decodes several images as jobs. The three types refer to each other, so they share this
//! file.

use std::any::Any;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use warpfeed_jpeg::bitstream::{Bitstream, Grid};
use warpfeed_jpeg::{Jpeg, Orientation};
use warpfeed_sources::format::Format;

use super::{Condition, Info, JpegInfo, Oriented, Pixels, Rect, Size};
use crate::error::{Error, Result};

/// Decodes one image format. A codec opens an image from its header and then decodes its pixels.
///
/// [`Codecs`](super::Codecs) chooses the codec of an image and checks the image's size. Opening
/// reads only the header, so the crop can be chosen before anything is decoded.
///
/// [`Loader::codec`](crate::Loader::codec) adds your own codec to a loader. Many threads call it
/// concurrently. Keep scratch memory in a `thread_local!` or in the pixels.
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
    /// Describes the format and how to recognize it. A codec for any bytes uses [`Format::any`].
    fn format(&self) -> Format;

    /// Whether this codec decodes these bytes. By default its format decides.
    fn matches(&self, bytes: &[u8]) -> bool {
        (self.format().matches)(bytes)
    }

    /// Opens an image that [matches](Codec::matches) this codec. Reads only the header, once.
    ///
    /// The size is that of the upright image, after EXIF orientation. Do not allocate pixels
    /// here: a header can claim any size, and [`Codecs`](super::Codecs) checks it afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) that names the byte at which the header
    /// becomes invalid.
    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>>;

    /// Decodes at least `region` of an image that this codec opened into `out`. [`Pixels::origin`]
    /// is the start of the decoded part. The region is in pixels of the upright image, is not
    /// empty, and lies inside the image.
    ///
    /// Inside the region the pixels must equal those of a full decode. The codec chooses how much
    /// it decodes around the region. Decoding may use up data that the image holds, but decoding
    /// again must give the same pixels.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) that names the place in the bytes. The
    /// content of `out` is then unspecified.
    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()>;

    /// Estimates, from the header, how many bytes decoding `region` takes, for pixels and scratch
    /// together. The default is three bytes per pixel of the image.
    ///
    /// A loader uses the estimate to keep concurrent decoding within
    /// [`Batches::memory_plan`](crate::Batches::memory_plan). For images of at most 350,000
    /// pixels it asks only if memory is scarce.
    fn memory(&self, image: &EncodedImage<'_>, region: Rect) -> u64 {
        let _ = region;
        image.size().area().saturating_mul(3)
    }

    /// Decodes several images that this codec opened. Override it if decoding them together is
    /// faster, for instance as independent streams side by side. Each job has its own result. A
    /// failed job must not affect the others.
    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        jobs.iter_mut().for_each(Job::run);
    }

    /// Reads a whole image and describes its damage, or returns `None` if there is none. The
    /// default only decodes the image.
    ///
    /// # Errors
    /// If the image as a whole does not decode.
    fn damage(&self, image: &mut EncodedImage<'_>) -> Result<Option<String>> {
        self.decode(image, Rect::full(image.size()), &mut Pixels::new()).map(|()| None)
    }
}

/// An opened image: its bytes, its size, and the data that its codec read from the header.
///
/// [`Codecs::open`](super::Codecs::open) returns it. All information about the image comes from
/// this handle, so its header is read once.
pub struct EncodedImage<'a> {
    bytes: &'a [u8],
    size: Size,
    orientation: Orientation,
    pub(super) header: Header<'a>,
    /// The image's codec; `None` until a registry sets it.
    pub(super) codec: Option<&'a dyn Codec>,
}

/// Data from a header that a codec keeps.
///
/// A JPEG's header is stored by value, so that opening it allocates nothing.
#[allow(clippy::large_enum_variant)]
pub(super) enum Header<'a> {
    /// Uses the lifetime, because `Image` depends on a feature.
    None(PhantomData<&'a ()>),
    Jpeg(Jpeg<'a>),
    #[cfg(feature = "formats")]
    Image(super::decoder::Opened<'a>),
    Own(Box<dyn Any + Send>),
}

impl<'a> EncodedImage<'a> {
    /// Creates an image of upright size `size`. A [`Codec`] calls this with the `bytes` that it
    /// opens.
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

    /// Sets the value of the EXIF tag, 1 to 8, by which the [`Codec`] turns the image upright, so
    /// that annotations of the stored pixels are turned with it.
    #[must_use]
    pub fn with_orientation(mut self, exif: u8) -> Self {
        self.orientation = Orientation::new(exif);
        self
    }

    /// Attaches data that the [`Codec`] read from the header and needs for decoding.
    #[must_use]
    pub fn with_header(mut self, header: impl Any + Send) -> Self {
        self.header = Header::Own(Box::new(header));
        self
    }

    /// The value passed to [`with_header`](EncodedImage::with_header), if it is an `H`.
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

    /// All bytes of the encoded image.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Size of the upright image.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The size of the image, upright, and the EXIF orientation that made it upright.
    pub fn oriented(&self) -> Oriented {
        Oriented::with(self.size, self.orientation)
    }

    /// The codec's [estimate](Codec::memory) of how many bytes decoding `region` takes, for pixels
    /// and scratch together.
    pub fn memory(&self, region: Rect) -> u64 {
        self.codec.map_or(0, |codec| codec.memory(self, region))
    }

    /// An estimate of the bytes that [`check`](EncodedImage::check) takes.
    pub(crate) fn check_memory(&self) -> u64 {
        // The coefficients of four components, or the pixels.
        self.memory(Rect::full(self.size)).max(self.size.area().saturating_mul(8))
    }

    /// Decodes at least `region` into `out`. The region is in pixels of the upright image.
    /// [`Pixels::origin`] is the start of the decoded part.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) that names the place in the bytes, or if the
    /// region is empty or leaves the image. The content of `out` is then unspecified.
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

    /// Information from the header.
    pub fn info(&self) -> Info {
        let jpeg = match &self.header {
            Header::Jpeg(jpeg) => Some(JpegInfo::of(jpeg)),
            _ => None,
        };
        let format = self.codec.map_or("", |codec| codec.format().name);
        Info { format, size: self.size, oriented: self.oriented(), jpeg }
    }

    /// Another handle of this image. `None` if that would read the header again.
    pub(crate) fn again(&self) -> Option<Self> {
        let header = match &self.header {
            Header::Jpeg(jpeg) => Header::Jpeg(jpeg.clone()),
            Header::None(_) => Header::None(PhantomData),
            _ => return None,
        };
        let EncodedImage { bytes, size, orientation, codec, .. } = *self;
        Some(EncodedImage { bytes, size, orientation, header, codec })
    }

    /// The time that decoding `region` takes, compared with other regions of this image.
    pub(crate) fn cost(&self, region: Rect) -> u64 {
        match &self.header {
            Header::Jpeg(jpeg) => jpeg.cost(region),
            // Other codecs decode the whole image.
            _ => self.size.area(),
        }
    }

    /// Whether the image is a JPEG without restart markers, whose crops cannot be decoded on
    /// their own.
    pub(crate) fn is_plain_jpeg(&self) -> bool {
        matches!(&self.header, Header::Jpeg(jpeg) if jpeg.restart_interval() == 0)
    }

    /// Extracts the data with which a device decodes `region`, at most `most` bytes. `None` if
    /// devices cannot decode this image, or if it needs more.
    pub(crate) fn bitstream(&self, region: Rect, most: usize, to: &mut Bitstream) -> Option<Grid> {
        let Header::Jpeg(jpeg) = &self.header else { return None };
        to.take(jpeg, region, most)
    }

    /// Bytes of memory that [`bitstream`](EncodedImage::bitstream) takes at most.
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
    /// The minimal region to decode, in pixels of the upright image.
    pub region: Rect,
    /// Receives the pixels.
    pub out: &'a mut Pixels,
    /// The result of decoding.
    pub result: Result<()>,
    /// The time that decoding took, if the image was decoded on its own.
    pub(crate) time: Option<Duration>,
}

impl<'a> Job<'a> {
    /// Creates a job.
    pub fn new(image: EncodedImage<'a>, region: Rect, out: &'a mut Pixels) -> Self {
        Job { image, region, out, result: Ok(()), time: None }
    }

    /// Decodes this job on its own and records the time it took.
    pub fn run(&mut self) {
        let start = Instant::now();
        self.result = self.image.decode(self.region, self.out);
        self.time = Some(start.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight images are moved per group.
    #[test]
    fn an_opened_image_is_small_enough_to_be_moved() {
        assert!(size_of::<EncodedImage<'_>>() <= 656, "{}", size_of::<EncodedImage<'_>>());
    }
}
