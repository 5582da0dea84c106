use super::{Job, Picture, Pixels, Rect};
use crate::error::Result;
use crate::format::Format;

/// What reads one picture format: opens a picture from its header, then delivers pixels of it.
///
/// [`Codecs`](super::Codecs) chooses the codec of a picture, and checks its size. Opening reads the
/// header alone, so that the crop can be chosen before anything is decoded.
///
/// A codec of your own is added to a loader by [`Loader::codec`](crate::Loader::codec). It is
/// called from many threads at once; its scratch belongs in a `thread_local!` or in the pixels.
///
/// ```
/// use warpfeed::decode::{Codec, Codecs, Picture, Pixels, Rect, Size};
/// use warpfeed::format::Format;
/// use warpfeed::{Error, Result};
///
/// /// Grey pictures: width and height in a byte each, then a byte a pixel.
/// struct Tiny;
///
/// impl Codec for Tiny {
///     fn format(&self) -> Format {
///         let matches = |bytes: &[u8]| bytes.starts_with(b"TINY");
///         Format { name: "tiny", field: "tiny", extensions: &["tiny"], matches }
///     }
///
///     fn open<'a>(&self, bytes: &'a [u8]) -> Result<Picture<'a>> {
///         let (Some(&width), Some(&height)) = (bytes.get(4), bytes.get(5)) else {
///             return Err(Error::decode(format!("tiny header ends at byte {}", bytes.len())));
///         };
///         let size = Size::new(width.into(), height.into());
///         let needed = 6 + size.area();
///         if bytes.len() as u64 != needed {
///             return Err(Error::decode(format!("tiny has {} bytes, not {needed}", bytes.len())));
///         }
///         Ok(Picture::new(bytes, size))
///     }
///
///     fn decode(&self, picture: &mut Picture<'_>, _region: Rect, out: &mut Pixels) -> Result<()> {
///         let grey = &picture.bytes()[6..];
///         // All of the picture, whatever the region: `place` is for those that deliver a part.
///         let pixels = out.reset(picture.size()).as_chunks_mut().0;
///         pixels.iter_mut().zip(grey).for_each(|(rgb, &grey)| *rgb = [grey; 3]);
///         Ok(())
///     }
/// }
///
/// let codecs = Codecs::new().with(Tiny);
/// let mut pixels = Pixels::new();
/// let mut picture = codecs.open(b"TINY\x02\x01\x09\x08")?;
/// picture.decode(Rect::full(picture.size()), &mut pixels)?;
/// assert_eq!(pixels.data(), [9, 9, 9, 8, 8, 8]);
/// # Ok::<(), Error>(())
/// ```
pub trait Codec: Send + Sync {
    /// How the format is recognised. [`Format::any`] is for a codec that takes whatever comes.
    fn format(&self) -> Format;

    /// Whether this codec takes a picture of these bytes. By default its format says so.
    fn matches(&self, bytes: &[u8]) -> bool {
        (self.format().matches)(bytes)
    }

    /// Opens a picture that this codec [takes](Codec::matches): reads its header, once.
    ///
    /// The size is that of the upright picture, after EXIF orientation. No memory is taken for
    /// pixels yet: a header can claim any size, and [`Codecs`](super::Codecs) checks it afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) naming the byte at which the header stops
    /// making sense.
    fn open<'a>(&self, bytes: &'a [u8]) -> Result<Picture<'a>>;

    /// Decodes at least `region` of a picture that this codec opened into `out`, which says with
    /// [`Pixels::origin`] what it holds. The region is in pixels of the upright picture, not empty,
    /// and inside it.
    ///
    /// Inside the region the pixels are those of a full decode; how much is decoded around it is
    /// the codec's affair. What the picture holds may be used up by it; decoding it again gives the
    /// same pixels.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) naming the place in the bytes. `out` then
    /// holds nothing of use.
    fn decode(&self, picture: &mut Picture<'_>, region: Rect, out: &mut Pixels) -> Result<()>;

    /// Bytes of memory that decoding `region` takes, pixels and scratch together: an estimate from
    /// the header. By default it is all pixels of the picture, three bytes each.
    ///
    /// A loader keeps the pictures that are in hand at once within
    /// [`Batches::memory_plan`](crate::Batches::memory_plan) by it. Of pictures of 350,000 pixels or fewer it
    /// asks only where memory is scarce.
    fn memory(&self, picture: &Picture<'_>, region: Rect) -> u64 {
        let _ = region;
        picture.size().area().saturating_mul(3)
    }

    /// Decodes several pictures that this codec opened. A codec that gains from company overrides
    /// it, such as one that decodes independent streams side by side. Each job keeps its own
    /// result, and a bad neighbour changes nothing for the others.
    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        jobs.iter_mut().for_each(Job::run);
    }

    /// Reads all of a picture, and says what in it is damaged though it decodes; `None` if nothing
    /// is known to be. By default that it decodes is all that is looked at.
    ///
    /// # Errors
    /// If the picture does not decode as a whole.
    fn damage(&self, picture: &mut Picture<'_>) -> Result<Option<String>> {
        self.decode(picture, Rect::full(picture.size()), &mut Pixels::new()).map(|()| None)
    }
}
