use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Dtype, Layout, Normalize};
use crate::decode::Codecs;
use crate::engine::DecodeOn;
use crate::error::{Error, Result};
use crate::field::Written;
use crate::trace;
use crate::transform::{Augment, Transform};

/// Options that a loader and a decoder have in common: pixels, speed and limits.
#[derive(Clone)]
pub(super) struct PictureOptions {
    pub(super) augment: Augment,
    pub(super) transforms: Vec<Arc<dyn Transform>>,
    /// Whether the transforms may move pixels.
    pub(super) moves_pixels: bool,
    pub(super) normalize: Option<Normalize>,
    pub(super) dtype: Option<Dtype>,
    pub(super) channels: usize,
    pub(super) layout: Layout,
    pub(super) codecs: Codecs,
    pub(super) seed: u64,
    pub(super) workers: usize,
    /// Ranks on this machine, which share its processors.
    pub(super) local_world_size: Option<usize>,
    pub(super) prefetch: usize,
    pub(super) pinned: bool,
    /// `None` is the default, which a loader and a decoder choose differently.
    pub(super) decode_on: Option<DecodeOn>,
    pub(super) decode_share: f64,
    pub(super) strict: bool,
    /// Limit of all fields of a sample together.
    pub(super) max_sample_bytes: u64,
    pub(super) memory_limit: Option<usize>,
    pub(super) timeout: Duration,
    pub(super) trace: Option<(PathBuf, trace::Schedule)>,
}

impl Default for PictureOptions {
    fn default() -> Self {
        PictureOptions {
            augment: Augment::eval(256, 224),
            transforms: Vec::new(),
            moves_pixels: true,
            normalize: None,
            dtype: None,
            channels: 3,
            layout: Layout::default(),
            codecs: Codecs::new(),
            seed: 0,
            workers: 0,
            local_world_size: None,
            prefetch: 0,
            pinned: false,
            decode_on: None,
            decode_share: 1.0,
            strict: false,
            max_sample_bytes: 1 << 31,
            memory_limit: None,
            timeout: Duration::from_secs(30),
            trace: None,
        }
    }
}

impl std::fmt::Debug for PictureOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PictureOptions { augment, dtype, layout, seed, workers, prefetch, .. } = self;
        f.debug_struct("PictureOptions")
            .field("augment", augment)
            .field("dtype", dtype)
            .field("layout", layout)
            .field("seed", seed)
            .field("workers", workers)
            .field("prefetch", prefetch)
            .finish_non_exhaustive()
    }
}

impl PictureOptions {
    /// An option that is set and that only images obey.
    pub(super) fn of_images(&self) -> Option<&'static str> {
        let options = [
            ("normalize", self.normalize.is_some()),
            ("dtype", self.dtype.is_some()),
            ("channels", self.channels != 3),
            ("layout", self.layout != Layout::default()),
            ("background", self.codecs.has_background()),
            ("to_8_bits", self.codecs.has_to_8_bits()),
            ("transform", !self.transforms.is_empty()),
        ];
        options.into_iter().find(|(_, is_set)| *is_set).map(|(option, _)| option)
    }

    /// The format in which the host writes the images of a batch with `layout`.
    ///
    /// # Errors
    /// If the element type or the scale does not suit the normalisation, or the images cannot have
    /// so many channels.
    pub(super) fn written(&self, layout: Layout) -> Result<Written> {
        let dtype = self.dtype.unwrap_or(if self.normalize.is_some() { Dtype::F32 } else { Dtype::U8 });
        if dtype == Dtype::U8 && self.normalize.is_some() {
            return Err(Error::config("normalize needs dtype f32, f16 or bf16; dtype is u8"));
        }
        if !matches!(self.channels, 1 | 3) {
            let channels = self.channels;
            return Err(Error::config(format!(
                "channels({channels}): an image has 3 or 1; field::Map reads pictures of any number of channels"
            )));
        }
        let normalize = self.normalize.unwrap_or(Normalize::UNIT);
        normalize.check_scale()?;
        Ok(Written { channels: self.channels, dtype, layout, normalize })
    }
}
