//! The numbers of workers and batches in use, and the limits on memory.
//!
//! The options of the loader enter. The decisions of the running engine leave: how many slots
//! circulate, whether workers or the device decode, and which worker may take more memory.
//!
//! 1. `slots`: [`Settings`], the numbers in use, and the reserve of slots.
//! 2. `tune`: [`Tuner`] changes the number of batches ahead if the user left it open.
//! 3. `balance`: [`Balance`] chooses between workers and the device.
//! 4. `scratch`: [`Scratch`], the memory that workers take in addition to the slots.
//! 5. `memory`: [`MemoryPlan`], everything that a loader allocates.
//! 6. `priority`: workers of a device yield to the threads that launch its kernels.

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
