use std::time::Duration;

use super::Loader;
use crate::engine::OnError;
use crate::error::{Error, Result};

/// Most times that a sample may be read again: with a pause of a second each that is a quarter of
/// an hour.
const MOST_RETRIES: usize = 1000;

/// What a sample may claim before anything is made of it, and how often it may be asked for.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) retries: usize,
    /// Bytes of all fields together.
    pub(super) sample_bytes: u64,
}

/// What happens when something fails, and how much may be claimed, kept and waited for.
impl Loader {
    /// What happens when a sample cannot be read, decoded or transformed; [`OnError::Stop`] by
    /// default.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// How often a sample is read again when its source reports a [transient](Error::is_transient)
    /// error (`EIO`, `EINTR`, `EAGAIN`, `ESTALE`, a timeout), before the error counts; 3 by
    /// default, 0 for never.
    ///
    /// The worker pauses for 5 ms before it reads again, then for four times as long each time, for
    /// a second at most. Every time is logged as a warning and counted in
    /// [`Stats::retries`](crate::Stats::retries). The reads of [`resume`](Loader::resume) and,
    /// uncounted, those of [`balanced`](Loader::balanced) are tried again as often. A worker keeps
    /// a buffer for each time.
    ///
    /// Opening it is an error for more than 1,000 times: a sample then holds up its batch for a
    /// quarter of an hour.
    pub fn retries(mut self, times: usize) -> Self {
        self.limits.retries = times;
        self
    }

    /// Most pixels that a picture may have by its header; 2^28 (16,384 by 16,384) by default. One
    /// that claims more is a failed sample, and no memory is taken for it: a file of a few bytes
    /// can claim gigabytes.
    ///
    /// It holds for every codec, also one of your own.
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.codecs = self.codecs.max_pixels(pixels);
        self
    }

    /// Most bytes that the fields of a sample may have together, as they are stored; 2^31 by
    /// default. One that has more is a failed sample, and nothing is decoded. Of a mapped tar or an
    /// LMDB nothing is copied before; a file in a folder, and a sample of a tar that is read
    /// ([`mmap(false)`](Loader::mmap)), is read first, up to 2 GiB.
    pub fn max_sample_bytes(mut self, bytes: u64) -> Self {
        self.limits.sample_bytes = bytes;
        self
    }

    /// How long the consumer may keep every slot while asking for another batch, before that is an
    /// error; 30 s by default. (A slow worker is no error: it is logged.)
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Most bytes that the loader may hold, on host and device together: slots, and the scratch of
    /// its workers ([`MemoryPlan`](crate::MemoryPlan)). Slots that need more are refused when it is
    /// opened. What they leave is the workers'; where that is less than they have use for, fewer
    /// large pictures are decoded at once. Automatic numbers of [`workers`](Loader::workers) and of
    /// [batches ahead](Loader::prefetch) stay within it.
    ///
    /// By default the limit is what the machine has available, and what the control group of its
    /// container has left (on Linux; elsewhere nothing is asked); workers' scratch is then at most
    /// half of what the slots leave. With a limit of your own that is not asked: you know the
    /// machine.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }
}

pub(super) fn check_retries(times: usize) -> Result<()> {
    if times > MOST_RETRIES {
        return Err(Error::config(format!(
            "retries({times}): at most {MOST_RETRIES}, which take a quarter of an hour a sample"
        )));
    }
    Ok(())
}
