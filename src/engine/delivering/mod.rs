//! Delivers full slots to the program as batches.
//!
//! Full slots arrive from the workers in any order, and the program receives them in the order of
//! the epoch. Once a batch has been dropped, or uploaded to a device, its slot returns to the
//! coordinator.

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
