use std::time::Duration;

use super::{DecoderBuilder, Loader};
use crate::engine::OnError;
#[cfg(doc)]
use crate::error::Error;

/// Errors, limits and timeouts.
impl Loader {
    /// Sets what happens if a sample cannot be read, decoded or transformed; [`OnError::Stop`] by
    /// default.
    ///
    /// ```
    /// # use warpfeed::{Loader, OnError};
    /// let loader = Loader::new("train").on_error(OnError::Skip { max_skipped: 100 });
    /// ```
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Sets how often a sample is read again after a [transient](Error::is_transient) error of its
    /// source (`EIO`, `EINTR`, `EAGAIN`, `ESTALE`, `EMFILE`, `ENFILE`, `ENOMEM`, a timeout); 3 by
    /// default. 0 means never. If the last attempt fails too, the error counts. `EMFILE`, `ENFILE`
    /// and `ENOMEM` then end the epoch, because they say nothing about the sample.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let network_drive = Loader::new("/mnt/nfs/train").retries(10);
    /// ```
    ///
    /// The first pause lasts 5 ms. Each further pause is four times as long, up to one second. Each
    /// retry is logged as a warning and counted in [`Stats::retries`](crate::Stats::retries). The
    /// reads of [`resume`](Loader::resume) and [`balanced`](Loader::balanced) are retried too;
    /// those of `balanced` are not counted. A worker keeps one buffer for each retry.
    ///
    /// More than 1,000 retries are an error when the loader is opened: they would hold up a batch
    /// for a quarter of an hour.
    pub fn retries(mut self, times: usize) -> Self {
        self.retries = times;
        self
    }

    /// Limits the bytes of all stored fields of a sample together; 2^31 by default. A larger sample
    /// fails before it is decoded.
    ///
    /// Mapped sources (tar and LMDB) and requests are checked before any copy. Files of a sample,
    /// such as those of folders and tables, are refused by their size before they fill the memory.
    /// Tar shards with [`mmap(false)`](Loader::mmap) are checked after reading, at most 2 GiB.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train.tar").max_sample_bytes(64 << 20);
    /// ```
    pub fn max_sample_bytes(mut self, bytes: u64) -> Self {
        self.pictures.max_sample_bytes = bytes;
        self
    }

    /// Sets how long a call for the next batch waits while the consumer holds every slot; 30 s by
    /// default. Then the call fails. Time spent on a slow worker does not count, but is logged.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").timeout(Duration::from_secs(5));
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.pictures.timeout = timeout;
        self
    }
}

shared_setters! {
    /// Sets whether damage in a picture is an error of its sample; off by default.
    ///
    /// Decoding continues past damage inside a JPEG, as libjpeg does with a warning. By default a
    /// loader counts such pictures in [`Stats::damaged`](crate::Stats::damaged) and names each sample
    /// once in the log, as a warning. It sees only the damage that decoding meets: damage outside the crop, damage that
    /// leaves valid codes, and data that is left over at the end of a segment are neither counted
    /// nor named.
    ///
    /// A strict loader first reads all of each picture, as [`check`](crate::decode::check) and
    /// `warpfeed verify` do, and refuses it for damage anywhere. The result is the same for every
    /// crop, and wherever the picture is decoded. Workers do this reading, also for pictures that a
    /// device decodes. It takes longer than decoding the whole picture, so photographs take two to
    /// three times as long. For a large data set run `warpfeed verify --strict` once instead.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").strict(true);
    /// ```
    ///
    /// The [`decode`](crate::decode) module lists what counts as damage.
    /// [`on_error`](Loader::on_error) sets the policy for such a sample.
    pub fn strict(mut self, strict: bool) -> Self { self.pictures.strict = strict; }

    /// Limits the pixels that a picture's header may claim; 2^28 (16,384 by 16,384) by default. A
    /// picture that claims more fails, and no memory is allocated for it.
    ///
    /// The limit holds for every codec, including your own.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").max_pixels(50_000_000);
    /// ```
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.pictures.codecs = self.pictures.codecs.max_pixels(pixels);
    }

    /// Limits the bytes that the loader holds, on host and device together: slots and workers'
    /// scratch; see [`MemoryPlan`](crate::MemoryPlan).
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").memory_limit(4 << 30);
    /// ```
    ///
    /// Opening fails if the slots need more. Workers get the rest as scratch. With little scratch,
    /// fewer large pictures are decoded at once. An automatic [`prefetch`](Loader::prefetch) stays
    /// within the limit.
    ///
    /// Without a limit, opening fails if the plan needs more host memory than is available on the
    /// machine or in the container's cgroup (Linux only). Workers' scratch is then at most half of
    /// what the slots leave. Setting a limit replaces this check.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.pictures.memory_limit = Some(bytes);
    }
}
