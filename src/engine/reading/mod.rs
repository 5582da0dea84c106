//! Threads that read samples ahead of the workers when storage is slow.
//!
//! The coordinator sends parts of batches to the readers, which read the samples of each part, and
//! send both to the workers.

mod prefetch;
mod read_buffers;
mod reader_count;
mod readers;
mod storage_wait;

pub(crate) use prefetch::PrefetchNotifier;
pub(crate) use readers::{PrefetchedSamples, ReadStage};
pub(crate) use storage_wait::{BlockTimer, ReaderSwitch};
