//! Threads that read samples ahead of the workers when storage is slow.
//!
//! Parts of batches enter from the coordinator. They leave for the workers, together with the
//! samples that were read for them.
//!
//! 1. `storage_wait`: whether reads wait for the storage, which decides who reads.
//! 2. `fetched`: samples on their way from a reader to a worker, with the memory they lie in.
//! 3. `depth`: the number of readers, which grows with the latency of reads.
//! 4. `follow`: tells a source that fetches ahead which samples are read next.
//! 5. `readers`: [`ReadStage`], the threads and the bytes that they may hold.

mod depth;
mod fetched;
mod follow;
mod readers;
mod storage_wait;

pub(crate) use follow::Following;
pub(crate) use readers::{Fetched, ReadStage};
pub(crate) use storage_wait::{Waits, Watch};
