//! The progress of a run, and how the program observes it.
//!
//! 1. `runtime`: [`Runtime`], the number of the current run, the counters and the settings.
//! 2. `resume`: [`Checkpoint`], and the check that a loader matches a checkpoint.
//! 3. `sample_errors`: the policy for failed samples, and the list of these samples.
//! 4. `length`: the number of batches in an epoch, from an order that may panic.
//! 5. `process`: rejects calls in a forked child.
//! 6. `handle`: [`LoaderHandle`], a handle for other threads.

mod handle;
mod length;
mod process;
mod resume;
mod runtime;
mod sample_errors;

pub use handle::LoaderHandle;
pub(crate) use handle::Shared;
pub(crate) use length::{check_not_empty, count_batches};
pub(crate) use process::check_process;
pub use resume::Checkpoint;
pub(crate) use runtime::{MAX_READERS, Runtime};
pub use sample_errors::{OnError, SampleError};
