//! Puts full slots in order and turns them into the batches that the program receives.
//!
//! Full slots arrive from the workers in any order. Batches leave in the order of the epoch. A
//! dropped batch returns its slot to the coordinator.
//!
//! 1. `engine`: [`Engine`] starts and ends the threads, orders full slots, and applies the policy
//!    for failed samples.
//! 2. `upload`: transfers full slots to a device.
//! 3. `batches`: [`Batches`], the open loader; `epoch`: [`Epoch`], one pass over the data;
//!    `into_iter`: [`IntoIter`], for a loader that is used directly in a `for` loop; `replay`:
//!    [`Replay`], which repeats a few batches; `accessors`: sizes, names and limits of the loader.

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
