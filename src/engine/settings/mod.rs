//! The workers, slots and memory that a loader uses.
//!
//! The options of the loader determine the initial values. While the engine runs, these modules
//! decide how many slots are in use, whether workers or the device decode, and which worker may use
//! shared memory.

mod balance;
mod memory;
mod priority;
mod scratch;
mod slots;
mod tune;

pub(crate) use balance::Balance;
pub use balance::DecodeOn;
pub use memory::MemoryPlan;
pub(crate) use scratch::{Scratch, ScratchPlan, Share};
pub(crate) use slots::{Bounds, MAX_WORKERS, Settings};
pub(crate) use tune::Tuner;
