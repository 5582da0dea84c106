//! The threads that make batches. `README.md` in this folder explains their design.
//!
//! A batch passes through these modules from top to bottom. Each module imports only from the
//! modules above it.
//!
//! 1. `settings`: the number of workers, the number of batches in use, and the memory limits.
//! 2. `state`: the progress of a run, and the program's view of it.
//! 3. `reading`: threads that read samples ahead of the workers.
//! 4. `working`: the coordinator and the workers, which turn free slots into full ones.
//! 5. `delivering`: puts full slots in order and delivers them to the program as batches.
//! 6. `serving`: a decoder, which turns requests into batches.

mod delivering;
mod reading;
mod serving;
mod settings;
mod state;
mod working;

pub use delivering::{Batches, Epoch, IntoIter, Replay};
pub(crate) use delivering::{Engine, Parts};
pub use serving::{Decoder, DynamicBatch, DynamicBatcher, Pending};
pub(crate) use serving::{Limits, Requests};
pub(crate) use settings::{Balance, Bounds, MOST_WORKERS, Scratch, ScratchPlan, Settings};
pub use settings::{DecodeOn, MemoryPlan};
pub(crate) use state::Shared;
pub use state::{Checkpoint, LoaderHandle, OnError, SampleError};
pub(crate) use state::{MOST_READERS, Run, some_batches};
pub(crate) use working::BatchSampler;
#[cfg(test)]
pub(crate) use working::filled;
#[cfg(all(test, feature = "_device"))]
pub(crate) use working::{kept_after, taken_again};
