//! The workers, slots and memory that a loader uses.
//!
//! The options of the loader determine the initial values. While the engine runs, these modules
//! decide how many slots are in use, whether workers or the device decode, and which worker may use
//! shared memory.
//!
//! 1. `slots`: [`Settings`], the number of workers and of slots in use, and the reserve of slots.
//! 2. `tune`: [`Tuner`] chooses the prefetch depth if it is automatic.
//! 3. `balance`: [`Balance`] divides decoding between the workers and the device.
//! 4. `scratch`: [`Scratch`], the memory that workers use in addition to the slots.
//! 5. `memory`: [`MemoryPlan`], the maximum memory of a loader.
//! 6. `priority`: lowers the priority of workers that feed a device, so that the threads that
//!    launch kernels run first.

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
