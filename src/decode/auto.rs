use crate::decode::{Decode, General, Npy, Pixels, Size, Want, raw};
use crate::error::Result;

/// The decoder that a loader uses unless it is given another: the first bytes of a sample say which one it takes.
///
/// `.npy` arrays go to [`Npy`], everything else to [`General`]. File names and field names play no part.
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
        if bytes.starts_with(raw::NPY_MAGIC) { &Npy } else { &self.general }
    }
}

impl Decode for Auto {
    fn size(&self, bytes: &[u8]) -> Result<Size> {
        self.choose(bytes).size(bytes)
    }

    fn decode(&self, bytes: &[u8], want: Want, out: &mut Pixels) -> Result<()> {
        self.choose(bytes).decode(bytes, want, out)
    }
}
