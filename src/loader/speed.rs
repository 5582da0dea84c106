use super::Loader;
#[cfg(doc)]
use crate::engine::Batches;

/// How fast it goes. No batch depends on these.
impl Loader {
    /// Worker threads that read, decode and transform. The number changes the speed and nothing
    /// else: batches are the same, bit for bit, for any number.
    ///
    /// 0, the default, is one for each processor that this process may use. More are of use for a
    /// decoder or a transform that waits. A source that waits for a disk or a network needs no more:
    /// when reads are seen to wait, up to 32 threads of their own read for the workers. They are
    /// started then, sleep while reads do not wait, and hold samples within the memory of
    /// [`Batches::memory_plan`]. Each worker costs a thread and scratch for the pictures in hand. More than
    /// 4,096 are an error when the loader is opened.
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads;
        self
    }

    /// Batches that are made ahead of the consumer. Like [`workers`](Loader::workers) it changes
    /// the speed alone.
    ///
    /// Each costs a slot of memory; one more is in the consumer's hands and one more is being
    /// filled, so that the loader holds `prefetch + 2` slots. More than a few help only when the
    /// time that samples or steps take varies much.
    ///
    /// 0, the default, is automatic: 2 to begin with, and twice as many, up to 16, when the
    /// consumer waits although workers idle because all slots are taken; kept if more samples come.
    /// A consumer that keeps batches alive is given more slots, as long as there are any. All slots
    /// there may be are allocated when the loader is opened, within the
    /// [`memory_limit`](Loader::memory_limit), or, without one, 1 GiB (256 MiB if page-locked; but
    /// always for 2) and what the machine has left. Ordinary memory that was never used stays the
    /// system's. On a device there are 2 batches, and what adapts is the host's slots.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// Whether batches lie in page-locked memory, which the GPU can copy from without the host's
    /// help; off by default.
    ///
    /// Uploads from there are asynchronous, those of cudarc's safe calls too. A batch may be
    /// dropped at once nevertheless: its memory is written again after all work that the devices
    /// had been given by then. The wait is on a thread of the loader's own. A step that takes long
    /// keeps slots so long, and the loader then prepares fewer batches ahead of the host.
    ///
    /// Two limits. Work of a CUDA context that a program makes beside the device's primary one is
    /// not seen: there `release_on` is needed. And a CUDA graph capture of a stream that the loader
    /// has never been given can be invalidated by the mark that a dropped batch needs; the driver
    /// reports that at the end of the capture. Streams of [`cuda::stream`](crate::cuda::stream),
    /// and those given to `release_on`, are known.
    #[cfg_attr(
        feature = "cuda",
        doc = "[`HostBatch::release_on`] names the stream that reads the batch: then nothing else is waited for."
    )]
    ///
    /// Without a CUDA driver there is none to be had: a warning is logged once, ordinary memory is
    /// used, and [`Batches::memory_plan`] says so. It costs time when the loader is opened, about 0.3 ms a
    /// MB, and the memory cannot be swapped out.
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// Whether tar shards are memory-mapped, as they are by default. `false` reads them instead,
    /// for files that may be cut short while they are open: that, and a medium that fails, is then
    /// an error of the sample whatever the moment, never a `SIGBUS` that ends the process, as it is
    /// if a mapped shard is cut short while workers are busy. It suits network file systems too. It
    /// costs a copy of the encoded bytes, and an open file a shard; see
    /// [`Tar::open_unmapped`](source::Tar::open_unmapped).
    ///
    /// Without effect on folders, which are always read, and on sources that were opened before. An
    /// LMDB is always mapped, by its library: with `false` it is refused when the loader is opened.
    pub fn mmap(mut self, mapped: bool) -> Self {
        self.mapped = mapped;
        self
    }
}
