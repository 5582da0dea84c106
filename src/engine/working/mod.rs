//! From a free slot to a full one.
//!
//! Free slots enter, with the order of the samples. Full slots leave, in any order, and errors that
//! end the run.
//!
//! 1. `task`: a part of a batch on its way to a worker.
//! 2. `filled`: what leaves.
//! 3. `meter`: the counters and the trace of a worker.
//! 4. `worker`: reads, plans, decodes, transforms and writes the samples of a part.
//! 5. `pool`: the threads; `crew`: parts as tasks of these threads.
//! 6. `coordinator`: assigns samples to a free slot, and hands it out in parts.

mod coordinator;
mod crew;
mod filled;
mod meter;
mod pool;
mod task;
mod worker;

pub(crate) use coordinator::{Asked, Coordinator, Start};
pub(crate) use crew::{Crew, Giver};
pub(crate) use filled::{ANY_RUN, Broken, Filled};
pub(crate) use pool::Pool;
#[cfg(feature = "cuda")]
pub(crate) use task::Again;
pub(crate) use task::Task;
#[cfg(all(test, feature = "cuda"))]
pub(crate) use worker::kept_after;
