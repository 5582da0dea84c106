//! The state of a run: its progress, its checkpoints and the handle for the user's other threads.

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
