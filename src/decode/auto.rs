use super::cost;
use super::jpeg::Within;
use super::{Decode, General, Job, MAX_PIXELS, Npy, Pixels, Size, Want, check_size, raw};
use crate::error::Result;

/// The decoder that a loader uses unless it is given another: the first bytes of a sample say which
/// one it takes.
///
/// JPEGs go to [`Jpeg`](super::jpeg::Jpeg), `.npy` arrays to [`Npy`], and every other format to
/// [`General`]. File names and field names play no part. What is read and what is refused is listed
/// [above](super#what-is-read).
#[derive(Debug, Clone)]
pub struct Auto {
    max_pixels: u64,
}

impl Default for Auto {
    fn default() -> Self {
        Auto { max_pixels: MAX_PIXELS }
    }
}

impl Auto {
    /// With the default limit of 2^28 pixels (16,384 by 16,384), which take 0.8 GB.
    pub fn new() -> Self {
        Self::default()
    }

    /// Most pixels that a picture of any format may claim to have. One that claims more is an error
    /// before anything is allocated.
    #[must_use]
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.max_pixels = pixels;
        self
    }

    fn general(&self) -> General {
        General::new().max_pixels(self.max_pixels)
    }
}

impl Decode for Auto {
    fn size(&self, bytes: &[u8]) -> Result<Size> {
        if is_jpeg(bytes) {
            return Within(self.max_pixels).size(bytes);
        }
        if bytes.starts_with(raw::NPY_MAGIC) {
            let size = Npy.size(bytes)?;
            return check_size("npy", size, self.max_pixels).map(|()| size);
        }
        self.general().size(bytes)
    }

    fn decode(&self, bytes: &[u8], want: Want, out: &mut Pixels) -> Result<()> {
        if is_jpeg(bytes) {
            return Within(self.max_pixels).decode(bytes, want, out);
        }
        if bytes.starts_with(raw::NPY_MAGIC) {
            self.size(bytes)?;
            return Npy.decode(bytes, want, out);
        }
        self.general().decode(bytes, want, out)
    }

    fn memory(&self, bytes: &[u8], size: Size, want: Want) -> u64 {
        cost::memory(bytes, size, want)
    }

    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        for jobs in jobs.chunk_by_mut(|a, b| is_jpeg(a.bytes) == is_jpeg(b.bytes)) {
            match jobs {
                [first, ..] if is_jpeg(first.bytes) => Within(self.max_pixels).decode_group(jobs),
                _ => jobs.iter_mut().for_each(|job| job.run(|bytes, want, out| self.decode(bytes, want, out))),
            }
        }
    }
}

pub(super) fn is_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xd8])
}
