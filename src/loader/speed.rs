use super::{DecoderBuilder, Loader};
#[cfg(doc)]
use crate::engine::Batches;
use crate::engine::DecodeOn;

/// Performance. These options do not change the batches.
impl Loader {
    /// Sets the number of batches that are prepared ahead of the consumer. The number only affects
    /// speed.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").prefetch(4);
    /// ```
    ///
    /// The loader holds `prefetch + 2` slots: the consumer has one, and one is being filled. More
    /// than a few batches help only if the times of samples or steps vary a lot.
    ///
    /// 0, the default, is automatic. It starts with 2 batches. If the consumer waits while workers
    /// are idle for lack of slots, the number is doubled, up to 16. An increase that does not raise
    /// throughput is undone. A consumer that keeps batches alive gets more slots while some are
    /// free.
    ///
    /// All slots are allocated on opening, limited by [`memory_limit`](Loader::memory_limit)
    /// (default: 1 GiB, or 256 MiB if page-locked, within the available memory, and always at least
    /// two batches). Pages that are never touched are never committed. With batches on a device, 2
    /// batches are kept ready, and only the number of host slots adapts.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.pictures.prefetch = batches;
        self
    }

    /// Sets the number of epochs that the program takes; unlimited by default. The loader prepares
    /// nothing for epoch `epochs` and later ones before they are requested, so a run of this many
    /// epochs ends without a read in vain.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let ninety_epochs = Loader::new("train").epochs(90);
    /// ```
    ///
    /// Without it, the loader prepares the first batches of the next epoch while an epoch ends, and
    /// discards them if the program does not ask for them; see [`Batches::epoch`]. They take the
    /// slots that are free anyway: at most [`prefetch`](Loader::prefetch) + 2 batches, and on a
    /// device as many again. Later epochs can still be requested, and then begin on request. With 0
    /// each epoch begins on request. Choose 0 if your own code, such as a
    /// [`transform`](Loader::transform), depends on state that the program changes between epochs.
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.epochs = epochs;
        self
    }

    /// Sets where JPEGs of batches in device memory are decoded; [`DecodeOn::Cpu`] by default. The
    /// choice only affects speed: batches stay the same, bit for bit.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// use warpfeed::DecodeOn;
    ///
    /// let loader = Loader::new("train.lmdb").decode_on(DecodeOn::Auto);
    /// ```
    ///
    /// With [`DecodeOn::Gpu`] workers only extract the parts of a JPEG that its crop needs. The
    /// device decodes, crops, resizes and flips them. [`DecodeOn::Auto`] does so while the workers
    /// on their own are too slow for the consumer. On an H200 a batch of 256 crops takes 0.6 ms of
    /// the device's time from packed files (`warpfeed pack`), and 1.5 ms from plain ones.
    ///
    /// Workers decode everything else: progressive, CMYK and damaged JPEGs, other formats,
    /// and all pictures of a loader with a [`transform`](Loader::transform), because it
    /// runs on the host. [`Stats::decoded_on_device`] counts the pictures that the device decoded.
    ///
    /// The device needs about 2.4 MB of memory per sample of a batch in addition to the batches;
    /// [`Batches::memory_plan`] includes it. Batches in host memory ignore the option.
    ///
    /// [`Stats::decoded_on_device`]: crate::Stats::decoded_on_device
    pub fn decode_on(mut self, decode_on: DecodeOn) -> Self {
        self.pictures.decode_on = Some(decode_on);
        self
    }

    /// Sets whether tar shards are memory-mapped; `true` by default. With `false`, shards are read
    /// with system calls.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let network_drive = Loader::new("/mnt/nfs/train-{000..099}.tar").mmap(false);
    /// ```
    ///
    /// If a mapped shard is truncated or its disk fails while it is in use, the process dies with
    /// `SIGBUS`. With reads, the same is an ordinary sample error. Reads also suit network file
    /// systems. They cost a copy of the encoded bytes and one open file per shard; see
    /// [`Tar::open_unmapped`](crate::source::Tar::open_unmapped).
    ///
    /// The option does not affect folders, which are always read, or sources that are already open.
    /// The LMDB library always maps its files: with `false`, opening an LMDB is an error.
    pub fn mmap(mut self, mapped: bool) -> Self {
        self.mapped = mapped;
        self
    }
}

shared_setters! {
    /// Sets the number of worker threads, which read, decode and transform. The number only affects
    /// speed: batches stay the same, bit for bit.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").workers(8);
    /// ```
    ///
    /// 0, the default, means one thread for each processor that this process may use. Set more for
    /// a decoder or a transform that blocks. Slow storage does not need more workers: if reads
    /// block on a disk or a network, 32 reader threads read ahead for the workers, and up to 512
    /// while more make reading faster. They start at the first blocking read, and sleep while reads
    /// do not block. Their samples stay within the memory of [`Batches::memory_plan`].
    ///
    /// Each worker costs a thread and scratch memory for its pictures. More than 768 workers are an
    /// error when the loader is opened.
    pub fn workers(mut self, threads: usize) -> Self { self.pictures.workers = threads; }

    /// Sets whether batches are in page-locked memory, from which a GPU copies without the host's
    /// help; off by default.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").pinned(true);
    /// ```
    ///
    /// Uploads from page-locked memory are asynchronous, also with cudarc's safe calls. You may
    /// still drop a batch at once. A thread of the loader makes sure that its memory is written
    /// again only after all work submitted to the devices before the drop has completed. While a
    /// long step keeps slots, the loader prepares fewer batches ahead.
    #[cfg_attr(
        feature = "cuda",
        doc = "\n[`HostBatch::release_on`](crate::HostBatch::release_on) names the stream that reads the batch: then the loader waits for that stream only."
    )]
    ///
    /// There are two limits:
    ///
    /// - The loader does not see work in a CUDA context other than the device's primary one.
    ///   Programs with such contexts need `release_on`.
    /// - For a dropped batch, the loader marks all work in the context. This can invalidate a CUDA
    ///   graph capture of a stream that the loader does not know. The driver reports that at the
    ///   end of the capture. The loader knows streams of [`cuda::stream`](crate::cuda::stream) and
    ///   those passed to `release_on`.
    ///
    /// Without a CUDA driver the loader logs one warning and uses pageable memory, which
    /// [`Batches::memory_plan`] shows. Page-locking takes about 0.3 ms per MB on opening. The
    /// memory cannot be swapped out.
    pub fn pinned(mut self, pinned: bool) -> Self { self.pictures.pinned = pinned; }

    /// Sets the maximum share of the device's time for decoding JPEGs, from 0 to 1; 1 by default.
    /// Workers decode the remaining pictures.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// use warpfeed::DecodeOn;
    ///
    /// let loader = Loader::new("train.lmdb").decode_on(DecodeOn::Gpu).decode_share(0.03);
    /// ```
    ///
    /// The share is averaged over some tenths of a second. It counts the time between the events
    /// around the decoding of a batch. If other work runs at the same time, the device decodes more
    /// slowly, and decoding then uses less of the device than this time suggests.
    /// [`Stats::device_decode`] reports the time.
    ///
    /// # Errors
    /// A share below 0 or above 1 fails with [`ErrorKind::Config`](crate::ErrorKind::Config) on
    /// opening.
    ///
    /// [`Stats::device_decode`]: crate::Stats::device_decode
    pub fn decode_share(mut self, share: f64) -> Self { self.pictures.decode_share = share; }
}
