//! Threads that read samples ahead of the workers when storage is slow.
//!
//! The coordinator sends parts of batches to the readers, which read the samples of each part, and
//! send both to the workers.
//!
//! 1. `storage_wait`: decides whether reader threads or the workers read samples, depending on
//!    whether reads block on storage.
//! 2. `read_buffers`: samples on their way from a reader to a worker, and their buffers.
//! 3. `reader_count`: chooses the number of readers.
//! 4. `prefetch`: notifies a prefetching source of the samples that will be read.
//! 5. `readers`: [`ReadStage`], the threads and their memory budget.

mod prefetch;
mod read_buffers;
mod reader_count;
mod readers;
mod storage_wait;

pub(crate) use prefetch::PrefetchNotifier;
pub(crate) use readers::{PrefetchedSamples, ReadStage};
pub(crate) use storage_wait::{BlockTimer, ReaderSwitch};
