//! The threads that produce batches. `README.md` in this folder describes the design.
//!
//! Each module imports only from the modules above it.
//!
//! 1. `settings`: the number of workers, the number of slots in use, the memory limits, and whether
//!    the device decodes.
//! 2. `state`: the progress of a run, and the handles through which the program observes it.
//! 3. `reading`: threads that read samples ahead of the workers when storage is slow.
//! 4. `working`: the coordinator, which assigns samples to slots, and the workers, which fill them.
//! 5. `delivering`: sorts full slots into the order of the run, and delivers them to the program as
//!    batches.
//! 6. `serving`: a decoder for inference servers, which turns requests into batches.

mod delivering;
mod reading;
mod serving;
mod settings;
mod state;
mod working;

pub use delivering::{Batches, Epoch, IntoIter, Replay};
pub(crate) use delivering::{Engine, EngineConfig};
pub use serving::{Decoder, DynamicBatch, DynamicBatcher, Pending};
pub(crate) use serving::{Limits, Requests};
pub(crate) use settings::{Balance, Bounds, MAX_WORKERS, Scratch, ScratchPlan, Settings};
pub use settings::{DecodeOn, MemoryPlan};
pub(crate) use state::Shared;
pub use state::{Checkpoint, LoaderHandle, OnError, SampleError};
pub(crate) use state::{MAX_READERS, Runtime, check_not_empty};
pub(crate) use working::BatchSampler;
#[cfg(test)]
pub(crate) use working::{DeviceImages, fill_slot};
#[cfg(all(test, feature = "_device"))]
pub(crate) use working::{images_left_to_device, memory_after_fill, redecode_memory};
