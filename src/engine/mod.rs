//! The threads that make batches. `README.md` in this folder explains their design.
//!
//! A batch passes through the groups from top to bottom. Each group imports only from groups above
//! it in the list.
//!
//! 1. `settings`: the numbers of workers and batches in use, and the limits on memory.
//! 2. `state`: the progress of a run, and what the user may ask of it.
//! 3. `reading`: threads that read samples ahead of the workers.
//! 4. `working`: the coordinator and the workers, from a free slot to a full one.
//! 5. `delivering`: full slots in order, and the batches that the user receives.
//! 6. `serving`: a decoder, whose batches are requests.

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
