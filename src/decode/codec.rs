use super::{Job, Picture, Pixels, Rect};
use crate::error::Result;
use crate::format::Format;

/// Decodes one picture format. It opens a picture from its header and then delivers its pixels.
///
/// [`Codecs`](super::Codecs) chooses the codec of a picture and checks the picture's size. Opening
/// reads only the header, so the crop can be chosen before anything is decoded.
///
/// [`Loader::codec`](crate::Loader::codec) adds your own codec to a loader. Many threads call it at
/// once. Keep its scratch in a `thread_local!` or in the pixels.
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
    /// How the format is recognised. A codec for any bytes uses [`Format::any`].
    fn format(&self) -> Format;

    /// Whether this codec decodes these bytes. The default asks its format.
    fn matches(&self, bytes: &[u8]) -> bool {
        (self.format().matches)(bytes)
    }

    /// Opens a picture that this codec [decodes](Codec::matches). Reads the header once.
    ///
    /// The size is that of the upright picture, after EXIF orientation. Do not allocate pixels
    /// here. A header can claim any size, and [`Codecs`](super::Codecs) checks it afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) naming the byte at which the header stops
    /// making sense.
    fn open<'a>(&self, bytes: &'a [u8]) -> Result<Picture<'a>>;

    /// Decodes at least `region` of a picture that this codec opened into `out`. [`Pixels::origin`]
    /// says where the decoded part begins. The region counts pixels of the upright picture. It is
    /// not empty and lies inside the picture.
    ///
    /// Inside the region the pixels equal those of a full decode. The codec decides how much it
    /// decodes around the region. Decoding may use up what the picture holds; decoding again gives
    /// the same pixels.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) naming the place in the bytes. The content
    /// of `out` is then unspecified.
    fn decode(&self, picture: &mut Picture<'_>, region: Rect, out: &mut Pixels) -> Result<()>;

    /// An estimate, from the header, of the bytes that decoding `region` takes: pixels and scratch
    /// together. The default is three bytes for each pixel of the picture.
    ///
    /// A loader uses the estimate to keep concurrent decoding within
    /// [`Batches::memory_plan`](crate::Batches::memory_plan). For pictures of 350,000 pixels or
    /// fewer it asks only where memory is scarce.
    fn memory(&self, picture: &Picture<'_>, region: Rect) -> u64 {
        let _ = region;
        picture.size().area().saturating_mul(3)
    }

    /// Decodes several pictures that this codec opened. Override it if decoding them together is
    /// faster, as with independent streams side by side. Each job has its own result; a failed job
    /// does not affect the others.
    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        jobs.iter_mut().for_each(Job::run);
    }

    /// Reads all of a picture that decodes and describes its damage; `None` if none was found. The
    /// default only decodes the picture.
    ///
    /// # Errors
    /// If the picture does not decode as a whole.
    fn damage(&self, picture: &mut Picture<'_>) -> Result<Option<String>> {
        self.decode(picture, Rect::full(picture.size()), &mut Pixels::new()).map(|()| None)
    }
}
