//! Progress of a run, and the user's view of it.
//!
//! Delivered batches and failed samples enter. Checkpoints, statistics and the list of faults
//! leave.
//!
//! 1. `run`: [`Run`], the number of the current run, its counters and its settings.
//! 2. `resume`: [`Checkpoint`], and whether a loader may continue from one.
//! 3. `sample_errors`: the policy for failed samples, and the list of them.
//! 4. `length`: the number of batches of an epoch, according to an order that may be the user's.
//! 5. `process`: refuses calls in a forked child.
//! 6. `handle`: [`LoaderHandle`], the handle of other threads.

mod handle;
mod length;
mod process;
mod resume;
mod run;
mod sample_errors;

pub use handle::LoaderHandle;
pub(crate) use handle::Shared;
pub(crate) use length::{batches, some_batches};
pub(crate) use process::check_process;
pub use resume::Checkpoint;
pub(crate) use run::{MOST_READERS, Run};
pub use sample_errors::{OnError, SampleError};
