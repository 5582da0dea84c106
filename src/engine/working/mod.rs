//! Fills slots, the reusable buffers of batches, with samples.
//!
//! The coordinator receives free slots and assigns samples to them in the order of the sampler. The
//! workers return full slots in any order. If a run of consecutive epochs ends early, the
//! coordinator sends the reason.
//!
//! 1. `task`: the messages in the workers' queue, each of which contains a part of a batch.
//! 2. `fill_result`: a full slot, or why no more slots will be filled.
//! 3. `meter`: measures how long a worker spends in each stage.
//! 4. `worker`: the state of a worker thread. `filler`: turns the samples of a part into rows of the
//!    batch. `clips`: does the same for clips. `buffers`: limits the memory of a worker's buffers.
//!    `copier`: copies samples that are arrays in memory.
//! 5. `pool`: the worker threads. `queue`: the queue of parts, and the rayon tasks that take parts
//!    from it.
//! 6. `coordinator`: assigns samples to free slots, and splits the slots into parts.

mod buffers;
mod clips;
mod coordinator;
mod copier;
mod fill_result;
mod filler;
mod meter;
mod pool;
mod queue;
mod task;
mod worker;

pub(crate) use coordinator::{BatchSampler, Coordinator};
pub(crate) use fill_result::{EndReason, FillResult};
#[cfg(test)]
pub(crate) use filler::DeviceImages;
pub(crate) use pool::Pool;
pub(crate) use queue::WorkSender;
#[cfg(feature = "_device")]
pub(crate) use task::RedecodeRequest;
pub(crate) use task::Task;
#[cfg(test)]
pub(crate) use worker::fill_slot;
#[cfg(all(test, feature = "_device"))]
pub(crate) use worker::{images_left_to_device, memory_after_fill, redecode_memory};
