use std::sync::Arc;
use std::time::Duration;

use super::Loader;
use super::input::Input;
use super::sampling::Sampling;
use super::share::{Place, Share};
use crate::batch::Delivered;
use crate::batch::HostBatch;
#[cfg(feature = "cuda")]
use crate::cuda::cudarc::driver::CudaStream;
#[cfg(feature = "cuda")]
use crate::device::CudaBatch;
use crate::engine::{Asked, Batches, DecodeOn, Decoder, Limits, Requests};
use crate::error::{Error, Result};
use crate::field::Image;
use crate::source::Source;

/// Requests that are under way at a time.
const AHEAD: usize = 3;

/// Decoders of pictures that come in requests.
impl Loader {
    /// The options of a [`Decoder`], which has no data set: pictures come in requests.
    ///
    /// ```
    /// use warpfeed::{Augment, Dtype, Layout, Loader, Normalize};
    ///
    /// /// What training and serving have in common.
    /// fn pixels(loader: Loader) -> Loader {
    ///     loader.normalize(Normalize::IMAGENET).dtype(Dtype::F16).layout(Layout::Nchw)
    /// }
    ///
    /// # fn main() -> warpfeed::Result<()> {
    /// let training = pixels(Loader::new("train").batch_size(256).shuffle(42).augment(Augment::train(224)));
    /// let serving = pixels(Loader::requests().batch_size(64).augment(Augment::eval(256, 224)));
    /// let decoder = serving.decoder()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`batch_size`](Loader::batch_size) is the most pictures of a request, and
    /// [`prefetch`](Loader::prefetch) the number of requests under way. Options of pictures, speed
    /// and limits mean what they mean for a loader. [`decode_on`](Loader::decode_on) is
    /// [`DecodeOn::Gpu`] here. Options that choose and order samples, add fields or share batches
    /// between ranks are refused.
    pub fn requests() -> Self {
        let nobody = Limits { pictures: 0, picture_bytes: 0, queued: 0, timeout: Duration::ZERO };
        let nothing = Input::Source(Arc::new(Requests::<HostBatch>::new(nobody)));
        Loader { retries: 0, decode_on: DecodeOn::Gpu, ..Self::from_input(nothing) }
    }

    /// Opens a [`Decoder`] with batches in host memory. If the loader has a data set, that is not
    /// opened.
    ///
    /// # Errors
    /// As [`host`](Loader::host), and for options that a decoder has no use for.
    pub fn decoder(self) -> Result<Decoder<HostBatch>> {
        self.decoder_of(Loader::host)
    }

    /// Opens a [`Decoder`] with batches in device memory, ordered on `stream`. JPEGs are decoded
    /// there as far as [`decode_on`](Loader::decode_on) says and memory has room; workers decode
    /// all others, to the same bits.
    ///
    /// ```no_run
    /// # use warpfeed::{Augment, Loader};
    /// let stream = warpfeed::cuda::stream(0)?;
    /// let decoder = Loader::requests().batch_size(64).augment(Augment::eval(256, 224)).cuda_decoder(&stream)?;
    /// # let uploads: Vec<Vec<u8>> = Vec::new();
    /// let batch = decoder.decode(uploads)?;
    /// let pixels = batch.images().view::<u8>()?; // for launches in `stream`
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`cuda`](Loader::cuda), and for options that a decoder has no use for.
    #[cfg(feature = "cuda")]
    pub fn cuda_decoder(self, stream: &Arc<CudaStream>) -> Result<Decoder<CudaBatch>> {
        self.decoder_of(|loader| loader.cuda(stream))
    }

    fn decoder_of<B: Delivered + Send + 'static>(
        self,
        open: impl FnOnce(Loader) -> Result<Batches<B>>,
    ) -> Result<Decoder<B>> {
        let (loader, requests) = self.for_requests()?;
        Decoder::new(requests, open(loader)?)
    }

    /// The loader whose batches are those that are asked for.
    pub(super) fn for_requests<B: Send + 'static>(self) -> Result<(Loader, Arc<Requests<B>>)> {
        let Sampling { shuffle, window, order, subset, weights, balanced, by_class_name, keep_labels, repeat } =
            &self.sampling;
        let refused = [
            ("shuffle", *shuffle || window.is_some()),
            ("order", order.is_some()),
            ("subset", subset.is_some()),
            ("weights", weights.is_some()),
            ("balanced", *balanced),
            ("by_class_name", *by_class_name),
            ("keep_labels", *keep_labels),
            ("repeat", repeat.is_some()),
            ("rank", !matches!(self.place, Place::Given { rank: 0, world: 1 })),
            ("global_batch_size", matches!(self.batch, Share::Global(_))),
            ("field", !self.fields.is_empty()),
            ("without", !self.without.is_empty()),
            ("soft_labels", self.soft_labels.is_some()),
            ("resume", self.resume.is_some()),
            ("augment with a mix", self.augment.mixes()),
        ];
        if let Some((option, _)) = refused.into_iter().find(|(_, is_set)| *is_set) {
            return Err(Error::config(format!("{option}: a decoder has no use for it")));
        }
        if self.max_queued == 0 {
            return Err(Error::config("max_queued(0): the queue has room for one request at least; say 1 or more"));
        }
        let limits = Limits {
            pictures: self.batch.of_all(1)? as usize,
            picture_bytes: self.max_sample_bytes,
            queued: self.max_queued,
            timeout: self.timeout,
        };
        let requests = Arc::new(Requests::new(limits));
        let source: Arc<dyn Source> = requests.clone();
        let asked: Arc<dyn Asked> = requests.clone();
        let ahead = if self.prefetch == 0 { AHEAD } else { self.prefetch };
        // Each request has a time of its own; it is looked at this often while no batch is free.
        let timeout = self.timeout / 4;
        let loader = Loader { input: Input::Source(source), asked: Some(asked), retries: 0, timeout, ..self };
        let loader = loader.prefetch(ahead).without("label").field("image", Image::of(Requests::<B>::FIELD));
        Ok((loader, requests))
    }
}
