//! Threads that read samples ahead of the workers when storage is slow.
//!
//! The coordinator sends parts of batches to the readers. The readers pass the parts to the
//! workers, together with the samples.
//!
//! 1. `storage_wait`: detects whether reads wait for the storage, which decides whether readers or
//!    workers read.
//! 2. `fetched`: samples in transit from a reader to a worker, and their buffers.
//! 3. `depth`: chooses the number of readers, based on the latency of reads.
//! 4. `follow`: tells a prefetching source which samples will be read next.
//! 5. `readers`: [`ReadStage`], the threads and their memory budget.

mod depth;
mod fetched;
mod follow;
mod readers;
mod storage_wait;

pub(crate) use follow::Following;
pub(crate) use readers::{Fetched, ReadStage};
pub(crate) use storage_wait::{Waits, Watch};
