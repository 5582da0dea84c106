//! warpfeed

pub mod batch;
pub mod cuda;
pub mod decode;
pub mod device;
mod engine;
mod error;
mod loader;
pub mod order;
pub mod pack;
pub mod source;
mod trace;
pub mod transform;

pub use batch::{Dtype, HostBatch, Layout, Normalize, View};
#[cfg(feature = "cuda")]
pub use device::CudaBatch;
pub use engine::{Batches, Epoch, Fault, IntoIter, MemoryPlan, OnError};
pub use error::{Error, ErrorKind, Result};
pub use loader::Loader;
pub use order::Last;
pub use trace::Stats;
pub use transform::Augment;
