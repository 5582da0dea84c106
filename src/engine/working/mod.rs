//! Fills slots, the reusable buffers of batches, with samples.
//!
//! The coordinator receives free slots and assigns samples to them in the order of the sampler. The
//! workers return full slots in any order. If an error ends a run, or if the next epoch is empty or
//! cannot be prepared, the coordinator sends the reason. If the coordinator panics, the engine
//! receives the panic as an error.

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
