use std::any::Any;
use std::time::Instant;

use super::{Codec, Condition, Info, Pixels, Rect, Size, image, jpeg};
use crate::error::{Error, Result};

/// An opened picture: its bytes, its size, and what its codec read from the header.
///
/// [`Codecs::open`](super::Codecs::open) returns it. Everything about the picture comes from here,
/// so its header is read once.
pub struct Picture<'a> {
    bytes: &'a [u8],
    size: Size,
    pub(super) header: Header<'a>,
    /// The picture's codec; `None` until a registry sets it.
    codec: Option<&'a dyn Codec>,
}

/// What a codec keeps from a header.
///
/// The crate's own decoder stores its header by value, so it allocates nothing per sample.
#[allow(clippy::large_enum_variant)]
pub(super) enum Header<'a> {
    None,
    Jpeg(jpeg::Opened),
    Image(image::Opened<'a>),
    Own(Box<dyn Any + Send>),
}

impl<'a> Picture<'a> {
    /// A picture of upright size `size`. A [`Codec`] calls this with the `bytes` that it opens.
    pub fn new(bytes: &'a [u8], size: Size) -> Self {
        Self::with(bytes, size, Header::None)
    }

    pub(super) fn with(bytes: &'a [u8], size: Size, header: Header<'a>) -> Self {
        Picture { bytes, size, header, codec: None }
    }

    /// Attaches what the [`Codec`] read from the header and needs for decoding.
    #[must_use]
    pub fn with_header(mut self, header: impl Any + Send) -> Self {
        self.header = Header::Own(Box::new(header));
        self
    }

    /// The value passed to [`with_header`](Picture::with_header), if it is an `H`.
    pub fn header<H: Any>(&self) -> Option<&H> {
        match &self.header {
            Header::Own(header) => header.downcast_ref(),
            _ => None,
        }
    }

    /// Sets the picture's codec.
    pub(super) fn by(mut self, codec: &'a dyn Codec) -> Self {
        self.codec = Some(codec);
        self
    }

    /// All bytes of the encoded picture.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The size of the picture, upright.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The codec's [estimate](Codec::memory) of the bytes that decoding `region` takes, pixels and
    /// scratch together.
    pub fn memory(&self, region: Rect) -> u64 {
        self.codec.map_or(0, |codec| codec.memory(self, region))
    }

    /// Decodes at least `region` into `out`. The region counts pixels of the upright picture.
    /// [`Pixels::origin`] says where the decoded part begins.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) naming the place in the bytes, or if the
    /// region is empty or leaves the picture. The content of `out` is then unspecified.
    pub fn decode(&mut self, region: Rect, out: &mut Pixels) -> Result<()> {
        self.check_region(region)?;
        self.codec()?.decode(self, region, out)
    }

    /// Reads all of the picture and says whether it is damaged, as [`check()`](super::check())
    /// does.
    pub fn check(&mut self) -> Condition {
        match self.codec().and_then(|codec| codec.damage(self)) {
            Ok(None) => Condition::Sound,
            Ok(Some(damage)) => Condition::Tolerated(damage),
            Err(e) => Condition::Damaged(e),
        }
    }

    /// What the header says.
    pub fn info(&self) -> Info {
        Info::of(self, self.codec.map_or("", |codec| codec.format().name))
    }

    /// Whether it is a JPEG without restart markers. A crop of such a JPEG cannot be decoded alone.
    pub(crate) fn is_plain_jpeg(&self) -> bool {
        matches!(&self.header, Header::Jpeg(opened) if opened.header.restart_interval == 0)
    }

    pub(super) fn check_region(&self, region: Rect) -> Result<()> {
        if region.fits(self.size) {
            return Ok(());
        }
        let (Rect { x, y, width, height }, size) = (region, self.size);
        Err(Error::decode(format!(
            "a region of {width}x{height} at ({x}, {y}) is not inside a picture of {}x{}",
            size.width, size.height
        )))
    }

    fn codec(&self) -> Result<&'a dyn Codec> {
        self.codec.ok_or_else(|| Error::decode("the picture was opened by a codec alone; `Codecs::open` opens it"))
    }
}

impl std::fmt::Debug for Picture<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Picture")
            .field("bytes", &self.bytes.len())
            .field("size", &self.size)
            .field("codec", &self.codec.map(|codec| codec.format().name))
            .finish_non_exhaustive()
    }
}

/// Pictures that are decoded together: enough for a decoder to work on several side by side, few
/// enough to share out a batch evenly. A sample has no more images than these.
pub(crate) const MAX_GROUP: usize = 8;

/// One picture of a [`decode_group`] call, with the region to decode.
#[derive(Debug)]
pub struct Job<'a> {
    /// The picture.
    pub picture: Picture<'a>,
    /// The region to decode at least, in pixels of the upright picture.
    pub region: Rect,
    /// Receives the pixels.
    pub out: &'a mut Pixels,
    /// The outcome.
    pub result: Result<()>,
}

impl<'a> Job<'a> {
    /// A new job.
    pub fn new(picture: Picture<'a>, region: Rect, out: &'a mut Pixels) -> Self {
        Job { picture, region, out, result: Ok(()) }
    }

    /// Decodes this job alone and stores the time it took.
    pub fn run(&mut self) {
        let start = Instant::now();
        self.result = self.picture.decode(self.region, self.out);
        self.out.time = Some(start.elapsed());
    }
}

/// Decodes all jobs. Each job gets its own result. Neighbours with the same codec are decoded
/// together ([`Codec::decode_group`]); JPEGs are decoded side by side.
pub fn decode_group(jobs: &mut [Job<'_>]) {
    let same = |a: &Job<'_>, b: &Job<'_>| match (a.picture.codec, b.picture.codec) {
        (Some(a), Some(b)) => std::ptr::addr_eq(a, b),
        _ => false,
    };
    for jobs in jobs.chunk_by_mut(same) {
        match jobs[0].picture.codec {
            Some(codec) => codec.decode_group(jobs),
            None => jobs.iter_mut().for_each(Job::run),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::jpeg::header::READS;
    use crate::decode::jpeg::libjpeg::{Options, encode};
    use crate::decode::standard;

    /// Of files that go through the lanes, and of those that the plain decoder takes: progressive,
    /// without EOI, damaged.
    #[test]
    fn a_header_of_a_jpeg_is_read_once_a_picture() {
        let pixels: Vec<u8> = (0..90 * 70 * 3).map(|i| (i * i / 7) as u8).collect();
        let file = |options| encode(&pixels, 90, 70, 3, &options);
        let plain = file(Options::new(90, 2, 2));
        let mut damaged = plain.clone();
        let middle = damaged.len() * 2 / 3;
        damaged.splice(middle..middle, [0xff, 0xd0]);
        let files = [
            plain[..plain.len() - 2].to_vec(),
            plain,
            file(Options { restart: 3, ..Options::new(90, 1, 1) }),
            file(Options { progressive: true, ..Options::new(90, 2, 1) }),
            damaged,
        ];
        let region = Rect::new(10, 10, 40, 30);
        let before = READS.get();
        for bytes in &files {
            let mut picture = standard().open(bytes).unwrap();
            assert!(picture.memory(region) > 0 && picture.info().jpeg.is_some());
            picture.is_plain_jpeg();
            assert!(!matches!(picture.check(), Condition::Damaged(_)));
            picture.decode(region, &mut Pixels::new()).unwrap();
        }
        assert_eq!(READS.get() - before, files.len() as u64);

        let mut outs = vec![Pixels::new(); files.len()];
        let jobs = files.iter().zip(&mut outs);
        let mut jobs: Vec<_> =
            jobs.map(|(bytes, out)| Job::new(standard().open(bytes).unwrap(), region, out)).collect();
        decode_group(&mut jobs);
        assert!(jobs.iter().all(|job| job.result.is_ok()));
        assert_eq!(READS.get() - before, 2 * files.len() as u64);
    }
}
