//! Delivers full slots to the program as batches.
//!
//! Full slots arrive from the workers in any order, and the program receives them in the order of
//! the epoch. Dropping a batch returns its slot to the coordinator.
//!
//! 1. `engine`: [`Engine`] starts and stops the threads, puts full slots in order, and applies the
//!    policy for failed samples.
//! 2. `upload`: an engine that uploads its full slots to a device.
//! 3. `batches`: [`Batches`], the open loader. `epoch`: [`Epoch`], one pass over the data.
//!    `into_iter`: [`IntoIter`], for a loader that is used directly in a `for` loop. `replay`:
//!    [`Replay`], which repeats a few batches. `accessors`: sizes, names and limits of the loader.
//!    `change`: changes a mixture's proportions or the sample weights during a run.

mod accessors;
mod batches;
mod change;
mod engine;
mod epoch;
mod into_iter;
mod replay;
#[cfg(feature = "_device")]
mod upload;

pub use batches::Batches;
pub(crate) use engine::{Engine, EngineConfig};
pub use epoch::Epoch;
pub use into_iter::IntoIter;
pub use replay::Replay;
