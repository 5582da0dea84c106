#![allow(unsafe_code)]
//! Measures the copy bandwidth to the GPU, and runs a loader on the GPU.
//!
//! **Invariants**
//! 1. The page-locked memory stays alive and unchanged until the stream that copies from it has
//!    been synchronized.

use std::time::Duration;

use warpfeed::{Loader, Result, Stats};

/// Measures the speed of batch-sized copies from page-locked memory to the first GPU, in bytes per
/// second.
#[cfg(feature = "cuda")]
pub(crate) fn copy_speed() -> Result<f64> {
    use std::time::Instant;

    use warpfeed::cuda::internal::{AfterFork, Context, DeviceBuffer, Pinned, Stream};

    const COPY_BYTES: usize = 32 << 20;
    const COPIES: usize = 40;
    let context = Context::new(0)?;
    let pinned = Pinned::new(&context, COPY_BYTES, AfterFork::Absent)?;
    let (memory, stream) = (DeviceBuffer::new(&context, COPY_BYTES)?, Stream::new(&context)?);
    let mut seconds = 0.0;
    // The first round is a warm-up.
    for _ in 0..2 {
        let start = Instant::now();
        for _ in 0..COPIES {
            // SAFETY: invariant 1, and nothing else accesses the target.
            unsafe { stream.upload(&memory, 0, &pinned)? };
        }
        stream.synchronize()?;
        seconds = start.elapsed().as_secs_f64();
    }
    Ok((COPIES * COPY_BYTES) as f64 / seconds)
}

#[cfg(feature = "cuda")]
pub(crate) fn run(loader: Loader, warmup: Duration, time: Duration, step: Duration) -> Result<Stats> {
    let mut batches = loader.cuda(&warpfeed::cuda::stream(0)?)?;
    crate::measure::measure(&mut batches, warmup, time, step, |_, _| ())
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn run(_: Loader, _: Duration, _: Duration, _: Duration) -> Result<Stats> {
    Err(warpfeed::Error::config("this build of the tool lacks the Cargo feature \"cuda\""))
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn copy_speed() -> Result<f64> {
    Err(warpfeed::Error::config("this build of the tool lacks the Cargo feature \"cuda\""))
}
