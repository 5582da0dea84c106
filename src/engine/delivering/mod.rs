//! Full slots in order, and the batches that the user receives.
//!
//! Full slots enter from the workers, in any order. Batches leave, in the order of the epoch. A
//! dropped batch returns its slot to the coordinator.
//!
//! 1. `engine`: [`Engine`] starts and ends the threads, orders full slots, and applies the policy
//!    for failed samples.
//! 2. `upload`: full slots on their way to a device.
//! 3. `batches`: [`Batches`], the open loader; `epoch`: [`Epoch`], one pass; `into_iter`:
//!    [`IntoIter`], a loader in `for`; `replay`: [`Replay`], a few batches again and again;
//!    `accessors`: the numbers of the loader.

mod accessors;
mod batches;
mod engine;
mod epoch;
mod into_iter;
mod replay;
#[cfg(feature = "_device")]
mod upload;

pub use batches::Batches;
pub(crate) use engine::{Engine, Parts};
pub use epoch::Epoch;
pub use into_iter::IntoIter;
pub use replay::Replay;
