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
    /// Opens the loader with batches in device memory, ordered on `stream`. The host waits only
    /// while no batch is ready.
    ///
    /// ```no_run
    /// # use warpfeed::Loader;
    /// let stream = warpfeed::cuda::stream(0)?;
    /// let mut batches = Loader::new("train.lmdb").batch_size(256).shuffle(42).cuda(&stream)?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// Images cross the bus as `u8`, from page-locked memory, on a stream of the loader's own. One
    /// kernel on the device then normalizes, casts, transposes, erases and mixes them.
    /// [`prefetch`](Loader::prefetch) batches are ready ahead of the consumer.
    /// [`pinned`](Loader::pinned) has no effect here: host slots are always page-locked.
    ///
    /// Asking for a batch while `stream` is captured into a CUDA graph fails with
    /// [`ErrorKind::Capturing`](crate::ErrorKind::Capturing). The loader and the capture continue.
    /// Take the batch before the capture, copy it into a buffer that the graph keeps, and replay.
    ///
    /// When the loader and its batches are dropped, a thread frees the device memory as soon as the
    /// device has finished its work.
    ///
    /// [`cuda::stream`](crate::cuda::stream) makes a stream, or reports that there is no driver.
    ///
    /// # Errors
    /// As [`host`](Loader::host). [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has
    /// too little memory left. [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) for an error of the
    /// driver.
    pub fn cuda(self, stream: &Arc<CudaStream>) -> Result<Batches<CudaBatch>> {
        self.on(Nvidia::of(stream)?, Stream::lent(stream)?)
    }
}

impl DecoderBuilder {
    /// Opens a decoder with batches in device memory, ordered on `stream`. The device decodes JPEGs
    /// according to [`decode_on`](DecoderBuilder::decode_on), as long as its memory has room.
    /// Workers decode all others, to the same bits.
    ///
    /// ```no_run
    /// # use warpfeed::{Augment, Decoder};
    /// let stream = warpfeed::cuda::stream(0)?;
    /// let decoder = Decoder::builder().batch_size(64).augment(Augment::eval(256, 224)).cuda(&stream)?;
    /// # let uploads: Vec<Vec<u8>> = Vec::new();
    /// let batch = decoder.decode(uploads)?;
    /// let pixels = batch.images().view::<u8>()?; // for launches in `stream`
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Loader::cuda`], and [`ErrorKind::Config`] if [`augment`](DecoderBuilder::augment) mixes
    /// images.
    pub fn cuda(self, stream: &Arc<CudaStream>) -> Result<Decoder<CudaBatch>> {
        self.open(|loader| loader.cuda(stream))
    }
}
