//! The threads that drive the path. `README.md` beside this file tells why they are as they are.
//!
//! 1. `engine`: [`Engine`] puts full slots back in order, and starts, stops and closes the lot;
//!    `filled`: what it gets from the other threads.
//! 2. `coordinator`: takes a free slot, decides what goes in, hands it out in parts.
//! 3. `pool`: the worker threads; `crew`: parts of batches as their tasks.
//! 4. `worker`: what a worker does with its part of a batch; `meter`: how it counts that;
//!    `again`: what a device left to the workers.
//! 5. `readers`: threads that read for the workers where reading waits; `waits`: whether it does;
//!    `fetched`: samples on their way from a reader to a worker.
//! 6. `run`: what goes on around the recipe.
//! 7. `settings`: the numbers of workers and slots in use; `tune`: finds that of slots, where it is
//!    left to the loader.
//! 8. `scratch`: memory that workers take beside the slots, and who may take it; `memory`: what a
//!    loader takes in all.
//! 9. `delivery` and `cuda`: what a full slot becomes: a batch in host memory, or what a device
//!    copies.
//! 10. `batches`: what the user holds; `epochs`: the same for who cannot borrow it; `monitor`: its
//!     state, for others to look at; `metered`: what it asks for and gets is counted there.
//! 11. `resume`: where a run stands, and whether a loader may go on from there.
//! 12. `length`: how many batches an epoch has, asked of an order that may be the user's.
//! 13. `balance`: whether workers or the device decode.
//! 14. `faults`: what happens to a sample that fails for good, and the list of those.
//! 15. `requests`: pictures as somebody asks for them, a batch a request; `reply`: where the answer
//!     to one lies; `decoder`: what the user asks.

mod again;
mod balance;
mod batches;
mod coordinator;
mod crew;
#[cfg(feature = "cuda")]
mod cuda;
mod decoder;
mod delivery;
#[allow(clippy::module_inception)]
mod engine;
mod epochs;
mod faults;
mod fetched;
mod filled;
mod length;
mod memory;
mod meter;
mod metered;
mod monitor;
mod pool;
mod readers;
mod reply;
mod requests;
mod resume;
mod run;
mod scratch;
mod settings;
mod tune;
mod waits;
mod worker;

pub(crate) use balance::Balance;
pub use balance::DecodeOn;
pub use batches::{Batches, Epoch, Replay};
pub use decoder::{Decoder, Pending};
pub(crate) use delivery::Delivery;
pub(crate) use engine::{Engine, MakeKeeper, Parts};
pub use epochs::{Epochs, IntoIter};
pub use faults::{Fault, OnError};
pub(crate) use length::some_batches;
pub use memory::MemoryPlan;
pub use monitor::Monitor;
pub(crate) use monitor::Shared;
pub(crate) use requests::{Asked, Limits, Requests};
pub use resume::Checkpoint;
pub(crate) use resume::Position;
pub(crate) use run::{READERS, Run};
pub(crate) use scratch::{Scratch, ScratchPlan};
pub(crate) use settings::{Bounds, MOST_WORKERS, Settings};
pub(crate) use tune::Tuner;
#[cfg(all(test, feature = "cuda"))]
pub(crate) use worker::kept_after;
