//! The number of workers, the number of batches in use, and the memory limits.
//!
//! The input is the options of the loader. The output is the decisions of the running engine: how
//! many slots circulate, whether workers or the device decode, and which worker may use shared
//! memory.
//!
//! 1. `slots`: [`Settings`], the number of workers and slots in use, and the reserve of slots.
//! 2. `tune`: [`Tuner`] adjusts the prefetch depth if it is automatic.
//! 3. `balance`: [`Balance`] divides decoding between the workers and the device.
//! 4. `scratch`: [`Scratch`], the workers' memory in addition to the slots.
//! 5. `memory`: [`MemoryPlan`], everything that a loader allocates.
//! 6. `priority`: lowers the priority of workers that feed a device, in favor of the threads that
//!    launch its kernels.

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
pub(crate) use slots::{Bounds, MOST_WORKERS, Settings};
pub(crate) use tune::Tuner;
