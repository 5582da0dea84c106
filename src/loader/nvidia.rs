//! Opens loaders and decoders with batches on an NVIDIA GPU.

use std::sync::Arc;

use super::{DecoderBuilder, Loader};
use crate::device::CudaBatch;
use crate::device::nvidia::{CudaStream, Nvidia, Stream};
use crate::engine::{Batches, Decoder};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

impl Loader {
    /// Opens the loader with batches in device memory, for use on `stream`. The host blocks only
    /// while no batch is ready.
    ///
    /// ```no_run
    /// # use warpfeed::Loader;
    /// let stream = warpfeed::cuda::stream(0)?;
    /// let mut batches = Loader::new("train.lmdb").batch_size(256).shuffle(42).cuda(&stream)?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// Images are copied from page-locked memory to the device, on a stream that belongs to the
    /// loader, as `u8` or, with [`decode_on`](Loader::decode_on), as encoded data. A single kernel
    /// on the device then normalizes, casts, transposes, erases and mixes the images. Up to
    /// [`prefetch`](Loader::prefetch) batches are ready ahead of the consumer.
    /// [`pinned`](Loader::pinned) has no effect here, because the host memory is always
    /// page-locked.
    ///
    /// While `stream` is being captured into a CUDA graph, requesting a batch fails with
    /// [`ErrorKind::Capturing`](crate::ErrorKind::Capturing), without affecting the loader or the
    /// capture. Therefore, request batches outside the capture, copy each batch into a buffer that
    /// the graph reads, and replay the graph.
    ///
    /// After the loader and its batches are dropped, a thread frees the device memory once the
    /// device has finished its work.
    ///
    /// [`cuda::stream`](crate::cuda::stream) creates a stream, or returns an error if there is no
    /// driver.
    ///
    /// # Errors
    /// See [`host`](Loader::host). In addition, returns
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device does not have enough free
    /// memory, and [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if the driver reports an error.
    pub fn cuda(self, stream: &Arc<CudaStream>) -> Result<Batches<CudaBatch>> {
        self.open_on(Nvidia::of(stream)?, Stream::lent(stream)?)
    }
}

impl DecoderBuilder {
    /// Opens a decoder with batches in device memory, for use on `stream`.
    /// [`decode_on`](DecoderBuilder::decode_on) sets whether the device decodes JPEGs. Workers
    /// decode images that the device cannot decode or that do not fit into its memory, with
    /// bit-identical results.
    ///
    /// ```no_run
    /// # use warpfeed::{Augment, Decoder};
    /// let stream = warpfeed::cuda::stream(0)?;
    /// let decoder = Decoder::builder().batch_size(64).augment(Augment::eval(256, 224)).cuda(&stream)?;
    /// # let uploads: Vec<Vec<u8>> = Vec::new();
    /// let batch = decoder.decode(uploads)?;
    /// let pixels = batch.images().view::<u8>()?; // for kernels on `stream`
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Loader::cuda`]. In addition, returns [`ErrorKind::Config`] if
    /// [`augment`](DecoderBuilder::augment) mixes or combines images or depends on the epoch, or if
    /// [`max_queued`](DecoderBuilder::max_queued) is 0.
    pub fn cuda(self, stream: &Arc<CudaStream>) -> Result<Decoder<CudaBatch>> {
        self.open(|loader| loader.cuda(stream))
    }
}
