//! Threads that read samples ahead of the workers when storage is slow.
//!
//! A *part* is a group of rows of a batch. The coordinator sends parts to the readers. A reader
//! reads the samples of a part, and sends the part and its samples to the workers.

mod prefetch;
mod read_buffers;
mod reader_count;
mod readers;
mod storage_wait;

pub(crate) use prefetch::PrefetchNotifier;
pub(crate) use readers::{PrefetchedSamples, ReadStage};
pub(crate) use storage_wait::{BlockTimer, ReaderSwitch};
