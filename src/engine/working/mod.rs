//! Fills the slots of batches.
//!
//! The coordinator receives free slots and assigns samples to them in the sample order. The workers
//! return full slots in any order. If a run ends because the sampler fails, or because the next
//! epoch is empty or cannot be prepared, the coordinator sends an end-of-run message.
//!
//! 1. `task`: the messages in the workers' queue, each of which contains a part of a batch.
//! 2. `outcome`: a full slot, or the end of the run.
//! 3. `meter`: measures how long a worker spends in each stage.
//! 4. `worker`: a worker and its buffers. `filler`: turns the samples of a part into rows of the
//!    batch. `clips`: decodes the frames of clips. `buffers`: the memory of the buffers. `copier`:
//!    copies samples that are arrays in memory.
//! 5. `pool`: the worker threads. `queue`: the queue of parts, and the rayon tasks that take parts
//!    from it.
//! 6. `coordinator`: assigns samples to free slots, and splits the slots into parts.

mod buffers;
mod clips;
mod coordinator;
mod copier;
mod filler;
mod meter;
mod outcome;
mod pool;
mod queue;
mod task;
mod worker;

pub(crate) use coordinator::{BatchSampler, Coordinator};
#[cfg(test)]
pub(crate) use filler::DeviceImages;
pub(crate) use outcome::{EndReason, Outcome};
pub(crate) use pool::Pool;
pub(crate) use queue::WorkSender;
#[cfg(feature = "_device")]
pub(crate) use task::Redecode;
pub(crate) use task::Task;
#[cfg(test)]
pub(crate) use worker::fill_slot;
#[cfg(all(test, feature = "_device"))]
pub(crate) use worker::{images_left_to_device, memory_after_fill, redecode_memory};
