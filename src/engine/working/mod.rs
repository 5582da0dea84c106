//! Fills free slots with samples.
//!
//! Free slots enter, with the order of the samples. Full slots leave in any order, and so does the
//! end of the run.
//!
//! 1. `task`: a part of a batch on its way to a worker.
//! 2. `outcome`: a full slot, or the end of the run.
//! 3. `meter`: the counters and the trace of a worker.
//! 4. `worker`: a worker, with its memory; `filler`: reads, plans, decodes, transforms and writes
//!    the samples of a part.
//! 5. `pool`: the threads; `queue`: the parts, and the tasks that take them.
//! 6. `coordinator`: assigns samples to a free slot, and divides it into parts.

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
