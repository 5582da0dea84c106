use super::Loader;
#[cfg(doc)]
use crate::engine::Batches;
use crate::engine::DecodeOn;

/// How fast it goes. No batch depends on these.
impl Loader {
    /// The number of worker threads, which read, decode and transform. It changes the speed only:
    /// batches are the same, bit for bit, for any number.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").workers(8);
    /// ```
    ///
    /// 0, the default, is one thread for each processor that this process may use. Set more for a
    /// decoder or a transform that waits. Slow storage needs no more workers: if reads wait for a
    /// disk or a network, up to 32 reader threads read ahead for the workers. They start when reads
    /// first wait and sleep when reads do not wait. Their samples stay within the memory of
    /// [`Batches::memory_plan`].
    ///
    /// Each worker costs a thread and scratch for its pictures. More than 768 workers are an error
    /// when the loader is opened.
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads;
        self
    }

    /// The number of batches that are made ahead of the consumer. It changes the speed only.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").prefetch(4);
    /// ```
    ///
    /// The loader holds `prefetch + 2` slots: one more is with the consumer, and one more is being
    /// filled. More than a few batches help only if the times of samples or steps vary much.
    ///
    /// 0, the default, is automatic. It begins with 2 batches. If the consumer waits while workers
    /// idle for lack of slots, the number is doubled, up to 16. A try that does not raise
    /// throughput is undone. A consumer that keeps batches alive gets more slots while there are
    /// free ones.
    ///
    /// All slots are allocated on opening, limited by [`memory_limit`](Loader::memory_limit)
    /// (default: 1 GiB, or 256 MiB if page-locked, within the available memory, and always at least
    /// two batches). Pages that are never touched are never committed. On a device, 2 batches are
    /// ready, and only the number of host slots adapts.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// Whether batches lie in page-locked memory; off by default. A GPU copies from it without the
    /// host's help.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").pinned(true);
    /// ```
    ///
    /// Uploads from page-locked memory are asynchronous, also by cudarc's safe calls. You may still
    /// drop a batch at once. Its memory is written again only after all work that the devices had
    /// been given by then. A thread of the loader waits for that. While a long step keeps slots,
    /// the loader prepares fewer batches ahead.
    #[cfg_attr(
        feature = "cuda",
        doc = "\n[`HostBatch::release_on`](crate::HostBatch::release_on) names the stream that reads the batch: then the loader waits for that stream only."
    )]
    ///
    /// There are two limits:
    ///
    /// - The loader does not see work in a CUDA context other than the device's primary one. Such
    ///   programs need `release_on`.
    /// - A dropped batch needs a mark of all work in the context. This mark can invalidate a CUDA
    ///   graph capture of a stream that the loader does not know. The driver reports that at the
    ///   end of the capture. The loader knows streams of [`cuda::stream`](crate::cuda::stream)
    ///   and those given to `release_on`.
    ///
    /// Without a CUDA driver the loader logs one warning and uses ordinary memory, and
    /// [`Batches::memory_plan`] says so. Page-locking takes about 0.3 ms a MB on opening. The
    /// memory cannot be swapped out.
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// Where JPEGs of batches in device memory are decoded; [`DecodeOn::Cpu`] by default. It changes
    /// the speed only: batches are the same, bit for bit.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// use warpfeed::DecodeOn;
    ///
    /// let loader = Loader::new("train.lmdb").decode_on(DecodeOn::Auto);
    /// ```
    ///
    /// With [`DecodeOn::Gpu`] workers only find the parts of a JPEG that its crop needs. The device
    /// decodes, crops, resizes and flips them. [`DecodeOn::Auto`] does so while the workers alone
    /// are too slow for the consumer. On an H200 a batch of 256 crops takes 0.6 ms of the device's
    /// time from packed files (`warpfeed pack`), and 1.5 ms from plain ones.
    ///
    /// Workers decode what the device does not: progressive, turned (EXIF), CMYK and damaged JPEGs,
    /// other formats, and all pictures of a loader with [`transform`](Loader::transform) or
    /// [`Augment::jitter`](crate::Augment::jitter). [`Stats::decoded_on_device`] counts the rest.
    ///
    /// The device needs memory beside the batches, about 2.4 MB a sample of a batch;
    /// [`Batches::memory_plan`] counts it. Batches in host memory ignore the option.
    ///
    /// [`Stats::decoded_on_device`]: crate::Stats::decoded_on_device
    pub fn decode_on(mut self, decode_on: DecodeOn) -> Self {
        self.decode_on = decode_on;
        self
    }

    /// The most of the device's time that decoding of JPEGs may take, from 0 to 1; 1 by default.
    /// Workers decode what goes beyond it.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// use warpfeed::DecodeOn;
    ///
    /// let loader = Loader::new("train.lmdb").decode_on(DecodeOn::Gpu).decode_share(0.03);
    /// ```
    ///
    /// The share is an average over some tenths of a second, of the time between the events around
    /// the decoding of a batch. Beside other work the device decodes more slowly, so decoding then
    /// takes less of it than this time says. [`Stats::device_decode`] has the time that it took.
    ///
    /// # Errors
    /// A share below 0 or above 1 is an [`ErrorKind::Config`](crate::ErrorKind::Config) on opening.
    ///
    /// [`Stats::device_decode`]: crate::Stats::device_decode
    pub fn decode_share(mut self, share: f64) -> Self {
        self.decode_share = share;
        self
    }

    /// Whether tar shards are memory-mapped; `true` by default. With `false` shards are read
    /// instead.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let network_drive = Loader::new("/mnt/nfs/train-{000..099}.tar").mmap(false);
    /// ```
    ///
    /// If a mapped shard is truncated or its disk fails while in use, the process dies with
    /// `SIGBUS`. With reads it is an ordinary sample error. Reads also suit network file systems.
    /// They cost a copy of the encoded bytes and one open file a shard; see
    /// [`Tar::open_unmapped`](crate::source::Tar::open_unmapped).
    ///
    /// The option has no effect on folders, which are always read, or on sources that are already
    /// open. An LMDB is always mapped by its library: with `false`, opening one is an error.
    pub fn mmap(mut self, mapped: bool) -> Self {
        self.mapped = mapped;
        self
    }
}
