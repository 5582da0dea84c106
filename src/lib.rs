//! A data loader that keeps a GPU fed.
//!
//! Worker threads read samples from class folders, an LMDB or tar shards. They decode and augment
//! them into batch buffers. A prefetcher copies those to the GPU on a CUDA stream of its own.
//!
//! [`Loader`] holds the options. Opening it gives [`Batches`], which owns the threads and all batch
//! memory. [`Batches::epoch`] iterates. Each item is a [`HostBatch`], or an [`Error`] that names
//! the sample.
//!
//! # Hello, batch
//!
//! ```
//! use warpfeed::{Augment, Loader};
//!
//! # fn main() -> warpfeed::Result<()> {
//! # std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
//! // A folder, an LMDB or tar shards: found out from the path.
//! let loader = Loader::new("datasets/mini").workers(2).pinned(true).prefetch(4);
//! // Random-resized crop and flip.
//! let mut batches = loader.batch_size(16).shuffle(42).augment(Augment::train(64)).host()?;
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
//! A loader can go straight into `for`: that is one pass over the data.
//!
//! # Cargo features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `cuda` | yes | `Loader::cuda`: batches in device memory; page-locked host memory. The driver is looked up at run time. Neither building nor running needs a CUDA toolkit. |
//! | `lmdb` | yes | [`source::Lmdb`], and its writer. LMDB is compiled from C. |
//! | `annotations` | yes | [`source::Coco`], [`source::Yolo`] and [`source::Voc`]. |
//! | `tables` | yes | [`source::Table`]: CSV, TSV and JSON lines. |
//! | `formats` | yes | PNG, WebP, BMP, TIFF and GIF pictures. |
//! | `pack` | yes | The module [`pack`]: writers of data sets. |
//! | `host` | yes | All default features except `cuda`. |
//! | `ndarray` | no | `TensorView::array`: a field as an `ndarray` view. |
//! | `nvtx` | no | NVTX ranges for Nsight Systems, with the names of the spans of a trace. |
//!
//! Without these features the crate reads folders, tar shards and your own sources of JPEGs and
//! arrays. A data set or a picture that needs a missing feature is an error that names the feature.
//!
//! # Your data
//!
//! [`new`](Loader::new) takes the path of a folder, an LMDB, tar shards, a table, or a set of
//! [COCO](source::Coco), [YOLO](source::Yolo) or [Pascal VOC](source::Voc).
//! [`table`](Loader::table) says what the columns of a table mean. [`index`](Loader::index) keeps
//! the listing of a folder in a file beside it.
//! [`source`](Loader::source) takes a [`Source`](source::Source) of your own, or an open one that
//! several loaders share. [`mixture`](Loader::mixture) draws from several data sets in proportions; [`by_class_name`](Loader::by_class_name) and
//! [`keep_labels`](Loader::keep_labels) say how their labels are joined. [`codec`](Loader::codec)
//! adds a picture format. The module [`pack`] writes data sets that load faster.
//!
//! # Pictures and fields
//!
//! [`augment`](Loader::augment) crops, resizes, flips and colours each picture.
//! [`transform`](Loader::transform) adds a step of your own. Images are `u8` (N, H, W, 3) by
//! default; [`dtype`](Loader::dtype), [`layout`](Loader::layout) and
//! [`normalize`](Loader::normalize) change that.
//!
//! Labels are `i64`. Reading labels that samples do not have is an error; with
//! [`unlabelled`](Loader::unlabelled) such labels are -1. [`soft_labels`](Loader::soft_labels) adds
//! rows of class shares. [`field`](Loader::field) adds arrays of a sample to the batch, and
//! [`without`](Loader::without) leaves out the image or the label. Masks, boxes, points and maps of
//! floats follow the crop of their picture. The module [`field`](mod@field)
//! lists the kinds. [`annotations_follow`](Loader::annotations_follow) says how they lie in pictures
//! that EXIF turns.
//!
//! [`classes`](Loader::classes) and [`classes_file`](Loader::classes_file) give the list of class
//! names that numbers the labels, so that two data sets with different classes number them alike.
//!
//! # Batches
//!
//! [`batch_size`](Loader::batch_size) sets the number of samples in a batch.
//! [`last_batch`](Loader::last_batch) says what happens to a last batch that is not full.
//!
//! [`host`](Loader::host) opens the loader with batches in host memory. A batch lies in one of the
//! loader's slots: a buffer that is allocated on opening and reused. With
//! [`pinned`](Loader::pinned) it is page-locked memory. A batch is yours until you drop it; then
//! its slot goes back to the workers.
#![cfg_attr(
    feature = "cuda",
    doc = "\n[`cuda`](Loader::cuda) opens it with batches in device memory, ordered on your stream."
)]
//!
//! # Pictures in requests
//!
//! [`Decoder::builder`] and [`Loader::decoder`] give the options of a [`Decoder`], for inference
//! servers: each request is some encoded pictures, and its answer is one batch with the pixels of a
//! loader.
//!
//! # Order and seeds
//!
//! The order is a function of (seed, epoch, position). The augmentation of a sample is a function
//! of (seed, epoch, sample). So batches are the same, bit for bit, for any number of workers, any
//! prefetch, and any source of the same data. [`Batches::epoch_from`] starts in the middle of an
//! epoch at no cost.
//!
//! [`shuffle`](Loader::shuffle) shuffles and sets the [`seed`](Loader::seed).
//! [`shuffle_window`](Loader::shuffle_window) keeps reads close together. [`order`](Loader::order)
//! takes an [`Order`](order::Order) of your own.
//!
//! [`split`](Loader::split) and [`split_by_class`](Loader::split_by_class) make a training and a
//! validation set. [`subset`](Loader::subset), [`weights`](Loader::weights),
//! [`balanced`](Loader::balanced), and [`repeat`](Loader::repeat) choose
//! samples. A sample that comes more than once in an epoch is augmented differently each time.
//!
//! # Several processes
//!
//! With [`rank`](Loader::rank), each process gets its share of every batch, and all processes get
//! the same number of batches. [`distributed`](Loader::distributed) takes the rank from torchrun,
//! Open MPI or SLURM. `batch_size` is the size of one share.
//! [`global_batch_size`](Loader::global_batch_size) is the size of the whole; with it the global
//! batches are the same for any number of processes.
//!
//! # Stopping and going on
//!
//! [`Monitor::checkpoint`] says where the run stands, exact to the batch that was delivered last.
//! It is a few hundred bytes in any `serde` format. [`resume`](Loader::resume) goes on there in
//! constant time, on any number of workers or ranks. It refuses a loader with another seed, global
//! batch, order or data set.
//!
//! # A bad sample
//!
//! A bad sample ends the epoch with an error like `sample 18231 (n01440764/x):
//! train/n01440764/x.JPEG: decode: jpeg ends at byte 4096 in MCU 61 of 132`. A panic in your own
//! source, decoder or transform is such an error too.
//!
//! [`on_error`](Loader::on_error) with [`OnError::Skip`] replaces the sample by another of the same
//! batch. [`BatchInfo::valid`] says which samples were replaced. [`Batches::faults`] lists each of
//! them once. [`retries`](Loader::retries) says how often a failed read is repeated.
//! [`strict`](Loader::strict) makes damage an error that decoders pass over; without it
//! [`Stats::damaged`] counts the pictures in which decoding met some.
//! [`max_pixels`](Loader::max_pixels) and [`max_sample_bytes`](Loader::max_sample_bytes) refuse
//! samples that are too large. [`mmap(false)`](Loader::mmap) makes a truncated shard an error
//! instead of a `SIGBUS`.
//!
//! # Speed and memory
//!
//! [`workers`](Loader::workers) sets the number of worker threads, one a core by default.
//! [`prefetch`](Loader::prefetch) sets the number of batches ahead; by default the loader finds it
//! while it runs. Both change the speed only.
//!
//! [`Batches::memory_plan`] says in bytes what the loader takes. It has `prefetch + 2` slots, each
//! as large as one batch; with automatic `prefetch`, the maximum it may reach. Workers take scratch
//! beside the slots: each has a share for ordinary pictures, and large pictures share the rest. The
//! list of skipped samples grows too, up to the limit of [`OnError::Skip`].
//!
//! Opening fails if the plan exceeds [`memory_limit`](Loader::memory_limit), or, without a limit,
//! the memory that is available (on Linux).
//!
//! With few cores a GPU, [`decode_on`](Loader::decode_on) lets the device decode JPEGs of its
//! batches, to the same bits. [`Stats::verdict`] and `warpfeed doctor` say where that helps.
//!
//! # What blocks
//!
//! `next()` waits until its batch is ready. [`Batches::stats`] counts these waits. Workers wait
//! while all slots are full: the consumer is then slower than the loader, which is the healthy
//! state. If you keep every batch and ask for another, you get an error after
//! [`timeout`](Loader::timeout). A worker that takes very long is logged, with the sample it works
//! on.
//!
//! # Where the time goes
//!
//! [`Batches::stats`] has the count, time and percentiles of every stage. They are always counted.
//! [`Stats::verdict`] says what limits the loader, and what would lift that limit.
//! [`Batches::monitor`] gives a handle for both inside a `for` loop and on another thread.
//! [`Loader::trace`] writes a file for Perfetto; [`trace::span()`] adds your own code to it.
//! [`Batches::replay`] shows how fast your step would be without a loader.
//!
//! The library prints nothing. It reports through [`tracing`](https://docs.rs/tracing): epochs at
//! `debug`, changes of automatic values at `info`, skipped samples and long waits at `warn`.
//!
//! # Shutting down
//!
//! Dropping the iterator ends the epoch: workers finish the samples they have begun. Dropping
//! [`Batches`] joins all workers. Batches that you still hold stay valid. Memory that a device
//! still reads is kept until the device is done. Other threads wait for that, and then end; your
//! own thread does not wait.
//!
//! # From bytes to the batch
//!
//! The modules follow the data: [`order`] says which sample is next, [`source`] reads its bytes,
//! [`decode`] turns them into pixels, [`transform`] crops, resizes and augments, [`batch`] holds
//! the result.

// Without all default features, helpers of the missing ones are unused.
#![cfg_attr(not(feature = "host"), allow(dead_code))]

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
#[cfg(feature = "pack")]
pub mod pack;
mod recipe;
pub mod source;
pub mod trace;
pub mod transform;

/// The code of README.md and of the pages in `docs`, run as doctests.
#[cfg(doctest)]
mod pages {
    macro_rules! page {
        ($name:ident, $path:literal) => {
            #[doc = include_str!($path)]
            struct $name;
        };
    }

    page!(Readme, "../README.md");
    page!(GettingStarted, "../docs/getting-started.md");
    page!(YourData, "../docs/your-data.md");
    page!(Augmentation, "../docs/augmentation.md");
    page!(MasksAndBoxes, "../docs/masks-and-boxes.md");
    page!(OnTheGpu, "../docs/on-the-gpu.md");
    page!(SeveralGpus, "../docs/several-gpus.md");
    page!(Resuming, "../docs/resuming.md");
    page!(Serving, "../docs/serving.md");
    page!(Frameworks, "../docs/frameworks.md");
    page!(WhereDoesTheTimeGo, "../docs/where-does-the-time-go.md");
    page!(Packing, "../docs/packing.md");
    page!(ComingFrom, "../docs/coming-from.md");
    page!(Extending, "../docs/extending.md");
}

#[cfg(test)]
#[path = "../tests/fuzz/mod.rs"]
mod fuzz;

pub use batch::{BatchInfo, Dtype, HostBatch, Layout, Normalize, TensorView};
pub use decode::Exif;
#[cfg(feature = "cuda")]
pub use device::CudaBatch;
pub use engine::{Batches, Checkpoint, DecodeOn, Decoder, Epoch, Epochs, Fault, IntoIter};
pub use engine::{MemoryPlan, Monitor, OnError, Pending, Replay};
pub use error::{Error, ErrorKind, Result};
pub use loader::{DataSet, DecoderBuilder, Loader};
pub use order::{LastBatch, Rank};
pub use trace::{Stats, Verdict};
pub use transform::Augment;
