//! The state of a run: its progress, its checkpoints and the handle for the user's other threads.
//!
//! 1. `runtime`: [`Runtime`] holds the number of the current run, the counters and the settings.
//! 2. `resume`: [`Checkpoint`], and the check that a loader matches a checkpoint.
//! 3. `sample_errors`: the policy for failed samples, and the list of these samples.
//! 4. `length`: counts the batches of an epoch, and catches panics of a user's sampler.
//! 5. `process`: returns an error for calls in a forked child.
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
