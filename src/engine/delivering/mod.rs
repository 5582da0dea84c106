//! Delivers full slots to the program as batches.
//!
//! Full slots arrive from the workers in any order, and the program receives them in the order of
//! the epoch. Dropping a batch returns its slot to the coordinator.

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
