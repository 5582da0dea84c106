use super::cost;
use super::jpeg::Jpeg;
use super::{Decode, General, Job, Npy, Pixels, Size, Want, raw};
use crate::error::Result;

/// The decoder that a loader uses unless it is given another: the first bytes of a sample say which one it takes.
///
/// JPEG goes to [`Jpeg`], which is the fast path; the few kinds of JPEG that it does not take (CMYK, arithmetic coding), and
/// every other format, to [`General`]; `.npy` arrays to [`Npy`]. File names and field names play no part.
#[derive(Debug, Clone, Default)]
pub struct Auto {
    general: General,
}

impl Auto {
    /// With the default limit on a picture's size.
    pub fn new() -> Self {
        Self::default()
    }

    /// Most pixels that a picture may claim; see [`General::max_pixels`].
    #[must_use]
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.general = self.general.max_pixels(pixels);
        self
    }

    fn choose(&self, bytes: &[u8]) -> &dyn Decode {
        if is_native_jpeg(bytes) {
            &Jpeg
        } else if bytes.starts_with(raw::NPY_MAGIC) {
            &Npy
        } else {
            &self.general
        }
    }
}

impl Decode for Auto {
    fn size(&self, bytes: &[u8]) -> Result<Size> {
        self.choose(bytes).size(bytes)
    }

    fn decode(&self, bytes: &[u8], want: Want, out: &mut Pixels) -> Result<()> {
        self.choose(bytes).decode(bytes, want, out)
    }

    fn memory(&self, bytes: &[u8], size: Size, want: Want) -> u64 {
        cost::memory(bytes, size, want)
    }

    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        for jobs in jobs.chunk_by_mut(|a, b| is_native_jpeg(a.bytes) == is_native_jpeg(b.bytes)) {
            match jobs {
                [first, ..] if is_native_jpeg(first.bytes) => Jpeg.decode_group(jobs),
                _ => jobs.iter_mut().for_each(|job| job.run(|bytes, want, out| self.decode(bytes, want, out))),
            }
        }
    }
}

fn is_native_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xd8]) && !Jpeg::is_foreign(bytes)
}
