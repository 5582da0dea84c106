//! A data loader that keeps a GPU fed.
//!
//! From the top: [`Loader`] configures; opening it gives [`Batches`], which owns the worker threads
//! and all batch memory; [`Batches::epoch`] iterates; each item is a [`HostBatch`], or an [`Error`]
//! that names the sample it belongs to.
//!
//! # Hello, batch
//!
//! ```
//! use warpfeed::{Augment, Loader};
//!
//! # fn main() -> warpfeed::Result<()> {
//! # std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
//! let mut batches = Loader::new("datasets/mini")   // a folder, an LMDB, tar shards: found out from the path
//!     .batch_size(16)
//!     .shuffle(42)
//!     .augment(Augment::train(64))                 // random-resized crop and flip
//!     .workers(2).pinned(true).prefetch(4)
//!     .host()?;
//! for epoch in 0..2 {
//!     for batch in batches.epoch(epoch) {
//!         let batch = batch?;
//!         assert_eq!(batch.images().shape(), [batch.len(), 64, 64, 3]);
//!         assert_eq!(batch.labels()?.len(), batch.len());
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! For a single pass a configured loader goes straight into `for`.
//!
//! # Where a batch lives
//!
//! In one of the loader's slots: a buffer that is allocated when the loader is opened and reused
//! until it is dropped. With [`pinned`](Loader::pinned) it is page-locked memory. A batch is yours
//! until you drop it; then its slot goes back to the workers. The images are `u8` (N, H, W, 3)
//! unless [`dtype`](Loader::dtype), [`layout`](Loader::layout) and [`normalize`](Loader::normalize)
//! say otherwise; labels are `i64`; further arrays of a sample come along with
//! [`field`](Loader::field). Reading labels that samples do not have is an error, unless
//! [`unlabelled`](Loader::unlabelled) makes them -1.
//!
//! # Order and seeds
//!
//! Which sample comes when is a pure function of (seed, epoch, position), and what happens to a
//! sample is one of (seed, epoch, sample). So batches are the same, bit for bit, for any number of
//! workers, any prefetch and any source of the same data; and [`epoch_from`](Batches::epoch_from)
//! starts in the middle of an epoch at no cost.
//!
//! [`subset`](Loader::subset), [`weights`](Loader::weights), [`balanced`](Loader::balanced),
//! [`repeat`](Loader::repeat), [`skip`](Loader::skip), [`shuffle_window`](Loader::shuffle_window)
//! and [`mixture`](Loader::mixture) choose among the samples, an [`Order`](order::Order) of your
//! own does anything else; all of them go together with what follows here. A sample that comes more
//! than once in an epoch is augmented differently each time.
//!
//! # Several processes
//!
//! With [`rank`](Loader::rank), or [`distributed`](Loader::distributed) under torchrun, Open MPI or
//! SLURM, each process gets its share of every batch, and all of them the same number of batches.
//! [`batch_size`](Loader::batch_size) is the size of a share; [`global_batch_size`](Loader::global_batch_size) that of
//! the whole, and then the global batches are the same for any number of processes.
//!
//! # Stopping and going on
//!
//! [`Epoch::checkpoint`] says where the run stands, exact to the batch that was delivered last, in a few
//! hundred bytes for `serde`. [`Loader::resume`] goes on there in constant time, on another number
//! of workers or ranks if need be, and refuses a loader whose seed, global batch, order or data set
//! is another.
//!
//! # A bad sample
//!
//! ends the epoch with an error like `sample 18231 (n01440764/x): train/n01440764/x.JPEG: decode:
//! jpeg ends at byte 4096 in MCU 61 of 132`. With [`OnError::Skip`] another sample of the batch
//! stands in for it, [`HostBatch::valid`] says which, and [`Batches::faults`] lists them, each
//! once. A panic in your own source, decoder or transform is such an error too.
//!
//! # How much memory
//!
//! [`Batches::memory_plan`] says, in bytes, before the first batch: `prefetch + 2` slots, each as large as
//! one batch; where [`prefetch`](Loader::prefetch) is automatic, as many as it may try. A plan of
//! more than the machine or the container has left is refused (on Linux). It says what workers take
//! beside the slots too: each has a share for ordinary pictures, and large ones share what is left.
//! Nothing grows beyond that but the list of skipped samples, as far as [`OnError::Skip`] allows.
//! [`memory_limit`](Loader::memory_limit) refuses a plan that is too large, and is what automatic
//! values stay within.
//!
//! # What blocks
//!
//! `next()` waits until its batch is ready, and [`Batches::stats`] says how long it did so in all.
//! Workers wait while all slots are full: a consumer that is slower than the loader is the usual,
//! healthy state. If you keep every batch and ask for another, that is an error after
//! [`timeout`](Loader::timeout), not a deadlock. A worker that takes very long is logged, through
//! `tracing`, with the sample it is at.
//!
//! # Where the time goes
//!
//! [`Batches::stats`] has every stage's count, time and percentiles, always counted;
//! [`Stats::verdict`] says in a sentence what limits the loader and what would lift it. For the
//! exact order of things, [`Loader::trace`] writes a file for Perfetto, with [`trace::span()`] for
//! your own code. [`Batches::replay`] says how fast your step would be without a loader.
//!
//! The library prints nothing. It reports through [`tracing`](https://docs.rs/tracing): epochs at
//! `debug`, changes of automatic values at `info`, skipped samples and long waits at `warn`.
//!
//! # Shutting down
//!
//! Dropping the iterator ends the epoch: samples in the workers' hands are finished, the rest is
//! let go. Dropping [`Batches`] joins all workers. Batches that you still hold stay valid. Memory
//! that a device still reads is kept until it has done so, by threads that end then; your own
//! thread does not wait for a device.
//!
//! # From bytes to the batch
//!
//! The modules lie as the data flows: [`order`] says which sample is next, [`source`] reads its
//! bytes, [`decode`] makes pixels of them, [`transform`] crops, resizes and augments, [`batch`]
//! holds the result. [`pack`] writes data sets that load faster.

pub mod batch;
pub mod cuda;
pub mod decode;
pub mod device;
mod engine;
mod error;
pub mod field;
pub mod format;
mod loader;
pub mod order;
pub mod pack;
mod recipe;
pub mod source;
pub mod trace;
pub mod transform;

#[cfg(test)]
#[path = "../tests/fuzz/mod.rs"]
mod fuzz;

pub use batch::{Dtype, HostBatch, Layout, Normalize, TensorView};
#[cfg(feature = "cuda")]
pub use device::CudaBatch;
pub use engine::{Batches, Checkpoint, Epoch, Fault, IntoIter, MemoryPlan, Monitor, OnError, Replay};
pub use error::{Error, ErrorKind, Result};
pub use loader::Loader;
pub use order::{LastBatch, Rank};
pub use trace::{Stats, Verdict};
pub use transform::Augment;
