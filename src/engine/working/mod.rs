//! Fills free slots with samples.
//!
//! The input is free slots and the order of the samples. The output is full slots, in any order,
//! and the end-of-run message.
//!
//! 1. `task`: a part of a batch in transit to a worker.
//! 2. `outcome`: a full slot, or the end of the run.
//! 3. `meter`: times and counts the stages of a worker.
//! 4. `worker`: a worker with its memory. `filler`: reads, plans, decodes, transforms and writes
//!    the samples of a part.
//! 5. `pool`: the worker threads. `queue`: the queue of parts, and the tasks that process them.
//! 6. `coordinator`: assigns samples to free slots, and splits the slots into parts.

mod coordinator;
mod filler;
mod meter;
mod outcome;
mod pool;
mod queue;
mod task;
mod worker;

pub(crate) use coordinator::{BatchSampler, Coordinator};
pub(crate) use outcome::{Ended, Outcome};
pub(crate) use pool::Pool;
pub(crate) use queue::WorkSender;
#[cfg(feature = "_device")]
pub(crate) use task::Again;
pub(crate) use task::Task;
#[cfg(test)]
pub(crate) use worker::filled;
#[cfg(all(test, feature = "_device"))]
pub(crate) use worker::{kept_after, taken_again};
