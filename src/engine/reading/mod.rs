//! Threads that read samples ahead of the workers when storage is slow.
//!
//! The coordinator sends parts of batches to the readers, which pass them on to the workers
//! together with the samples.
//!
//! 1. `storage_wait`: decides whether readers or workers read, depending on whether reads wait for
//!    the storage.
//! 2. `fetched`: samples on their way from a reader to a worker, and their buffers.
//! 3. `depth`: chooses the number of readers.
//! 4. `follow`: tells a source that prefetches which samples will be read.
//! 5. `readers`: [`ReadStage`], the threads and their memory budget.

mod depth;
mod fetched;
mod follow;
mod readers;
mod storage_wait;

pub(crate) use follow::Following;
pub(crate) use readers::{Fetched, ReadStage};
pub(crate) use storage_wait::{Waits, Watch};
