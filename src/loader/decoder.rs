//! The options of a decoder.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Loader;
use super::batch_size::BatchSize;
use super::images::ImageOptions;
use super::input::Input;
use crate::batch::{Delivered, HostBatch};
use crate::engine::{BatchSampler, Batches, DecodeOn, Decoder, Limits, Requests};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::field::{Geometry, Image};
use crate::sampler::Rank;
use crate::source::Source;
use crate::trace;

const DEFAULT_PREFETCH: usize = 3;

/// Options of a [`Decoder`], which decodes batches of encoded images on request.
///
/// [`Decoder::builder`] returns the default options, and [`Loader::decoder`] returns the options of
/// a loader. [`host`](DecoderBuilder::host) and `cuda` open the decoder. If the documentation of an
/// option only refers to the [`Loader`] option of the same name, both options have the same
/// meaning.
///
/// ```
/// use warpfeed::{Augment, Decoder, Dtype, Layout, Normalize};
///
/// # fn main() -> warpfeed::Result<()> {
/// let options = Decoder::builder().batch_size(64).augment(Augment::eval(256, 224));
/// let options = options.normalize(Normalize::IMAGENET).dtype(Dtype::F16).layout(Layout::Nchw);
/// let decoder = options.host()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a decoder does nothing until it is opened with `host` or `cuda`"]
#[derive(Debug, Clone)]
pub struct DecoderBuilder {
    pub(super) images: ImageOptions,
    batch_size: usize,
    max_queued: usize,
    geometry: bool,
}

impl Decoder<HostBatch> {
    /// Returns the default options of a decoder. [`DecoderBuilder::host`] opens a decoder with
    /// batches in host memory, and `DecoderBuilder::cuda` one with batches in device memory.
    pub fn builder() -> DecoderBuilder {
        DecoderBuilder::new(ImageOptions::default(), 32)
    }
}

/// Decoding on request.
impl Loader {
    /// Returns the options of a [`Decoder`] that processes images like this loader. They include
    /// the loader's batch size per rank, and its options for images, speed and limits. Views, other
    /// fields, the augmentations of individual datasets ([`augment_for`](Loader::augment_for)), the
    /// cache of decoded images, retries and the trace are not included. The dataset is not opened.
    ///
    /// ```
    /// use warpfeed::{Augment, Dtype, Layout, Loader, Normalize};
    ///
    /// # fn main() -> warpfeed::Result<()> {
    /// let training = Loader::new("train").batch_size(64).shuffle(42).augment(Augment::train(224));
    /// let training = training.normalize(Normalize::IMAGENET).dtype(Dtype::F16).layout(Layout::Nchw);
    /// let serving = training.decoder().augment(Augment::eval(256, 224)).host()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn decoder(&self) -> DecoderBuilder {
        // The loader and the decoder must not write to the same trace.
        let images = ImageOptions { trace: None, ..self.images.clone() };
        // Ignore an invalid rank: it affects only this process's share of a global batch, and
        // opening the loader reports the error.
        let rank = self.rank_origin.rank(self.images.local_world_size).unwrap_or(Rank::SINGLE);
        let batch_size = match self.effective_batch_size() {
            BatchSize::PerRank(samples) => samples,
            BatchSize::Global(samples) => samples.div_ceil(rank.world_size),
        };
        let local_world_size = self.images.local_world_size.or(rank.local_world_size);
        DecoderBuilder::new(ImageOptions { local_world_size, ..images }, batch_size)
    }
}

impl DecoderBuilder {
    fn new(images: ImageOptions, batch_size: usize) -> Self {
        DecoderBuilder { images, batch_size, max_queued: 1024, geometry: false }
    }

    /// Opens a decoder with batches in host memory.
    ///
    /// # Errors
    /// See [`Loader::host`]. In addition, returns [`ErrorKind::Config`] if
    /// [`augment`](DecoderBuilder::augment) mixes or combines images or depends on the epoch, or if
    /// [`max_queued`](DecoderBuilder::max_queued) is 0.
    pub fn host(self) -> Result<Decoder<HostBatch>> {
        self.open(Loader::host)
    }

    pub(super) fn open<B: Delivered + Send + 'static>(
        self,
        open: impl FnOnce(Loader) -> Result<Batches<B>>,
    ) -> Result<Decoder<B>> {
        let (loader, requests) = self.loader()?;
        Decoder::new(requests, open(loader)?)
    }

    /// Returns a loader that prepares one batch per request, and the queue of requests, which is
    /// the source of the loader.
    pub(super) fn loader<B: Send + 'static>(self) -> Result<(Loader, Arc<Requests<B>>)> {
        let DecoderBuilder { images, batch_size, max_queued, geometry } = self;
        if images.augment.mixes() {
            return Err(Error::config(
                "augment mixes images, but a decoder processes each image separately; remove the mixing",
            ));
        }
        if let Some(step) = images.augment.joining_steps().next() {
            return Err(Error::config(format!(
                "augment combines images ({step}), but a decoder processes each image separately; remove this step"
            )));
        }
        if images.augment.has_later_augments() {
            return Err(Error::config("augment has from_epoch, but a decoder has no epochs; remove from_epoch"));
        }
        if max_queued == 0 {
            return Err(Error::config("max_queued(0): expected at least 1"));
        }
        let ImageOptions { prefetch, held_batches_timeout: timeout, decode_on, max_sample_bytes, .. } = images;
        let limits = Limits { max_images: batch_size, max_image_bytes: max_sample_bytes, max_queued, timeout };
        let requests = Arc::new(Requests::new(limits));
        let source: Arc<dyn Source> = requests.clone();
        let batch_sampler: Arc<dyn BatchSampler> = requests.clone();
        let images = ImageOptions {
            prefetch: if prefetch == 0 { DEFAULT_PREFETCH } else { prefetch },
            decode_on: Some(decode_on.unwrap_or(DecodeOn::Gpu)),
            // Requests have their own timeout. The loader's timeout is the interval at which the
            // requests are checked while the program holds all batches.
            held_batches_timeout: timeout / 4,
            retries: 0,
            ..images
        };
        let loader = Loader { images, batch_sampler: Some(batch_sampler), ..Loader::from_input(Input::Source(source)) };
        let loader =
            loader.batch_size(batch_size).drop_field("label").field("image", Image::from_field(Requests::<B>::FIELD));
        Ok((if geometry { loader.field("geometry", Geometry::new()) } else { loader }, requests))
    }
}

/// Option setters.
impl DecoderBuilder {
    /// Sets the maximum number of images in a request; 32 by default.
    pub fn batch_size(mut self, images: usize) -> Self {
        self.batch_size = images;
        self
    }

    /// Sets the maximum number of queued requests; 1,024 by default. Further requests are rejected
    /// with [`ErrorKind::Busy`]. Canceled requests do not count. A [dynamic
    /// batcher](Decoder::dynamic_batcher) has its own queue with the same limit. Opening fails if
    /// the number is 0.
    ///
    /// ```
    /// # use warpfeed::Decoder;
    /// let decoder = Decoder::builder().max_queued(64).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn max_queued(mut self, requests: usize) -> Self {
        self.max_queued = requests;
        self
    }

    /// Adds the `geometry` field to the batches. This field contains the transform from each source
    /// image to its output image. Use it to map predictions back to the source image; see
    /// [`Geometry`]. For a bad image, all values are 0.
    ///
    /// ```
    /// # use warpfeed::{Augment, Decoder};
    /// let decoder = Decoder::builder().augment(Augment::letterbox(640, 640)).geometry().host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn geometry(mut self) -> Self {
        self.geometry = true;
        self
    }

    /// Sets the number of processes that share the cores of this machine, like
    /// [`Loader::local_world_size`]. Opening fails if the number is 0. The default is 1, or the
    /// loader's value for options from [`Loader::decoder`].
    pub fn local_world_size(mut self, ranks: usize) -> Self {
        self.images.local_world_size = Some(ranks);
        self
    }

    /// Sets the maximum number of requests that are processed at the same time. 0, the default,
    /// means 3. Options from [`Loader::decoder`] start with the value of the loader's
    /// [`prefetch`](Loader::prefetch).
    pub fn max_in_flight(mut self, requests: usize) -> Self {
        self.images.prefetch = requests;
        self
    }

    /// Sets how long a request may wait while your program holds all batches; 30 s by default.
    /// After this time, the request fails with [`ErrorKind::Timeout`].
    pub fn held_batches_timeout(mut self, timeout: Duration) -> Self {
        self.images.held_batches_timeout = timeout;
        self
    }

    /// Sets where JPEGs are decoded for batches in device memory; [`DecodeOn::Gpu`] by default. The
    /// pixels are bit-identical; see [`Loader::decode_on`].
    pub fn decode_on(mut self, decode_on: DecodeOn) -> Self {
        self.images.decode_on = Some(decode_on);
        self
    }

    /// Limits the size of an encoded image; 2^31 bytes by default. A larger image fails without
    /// affecting the other images, and its bytes are freed immediately.
    pub fn max_sample_bytes(mut self, bytes: u64) -> Self {
        self.images.max_sample_bytes = bytes;
        self
    }
}

impl DecoderBuilder {
    /// See [`Loader::trace`].
    pub fn trace(mut self, path: impl AsRef<Path>, schedule: trace::Schedule) -> Self {
        self.images.trace = Some((path.as_ref().to_owned(), schedule));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loader;

    #[test]
    fn a_decoder_inherits_the_local_world_size_but_not_the_trace() {
        let loader = Loader::new("train")
            .trace("t.json", trace::Schedule { wait: 0, warmup: 0, active: 1, repeat: 0 })
            .local_world_size(8);
        let decoder = loader.global_batch_size(4096).rank(3, 64).decoder();
        assert_eq!((decoder.batch_size, decoder.images.local_world_size), (64, Some(8)));
        assert!(decoder.images.trace.is_none(), "a loader and a decoder must not write to the same file");
        assert_eq!(Loader::new("train").batch_size(48).rank(1, 2).decoder().batch_size, 48);
    }
}
