//! A data loader that keeps a GPU fed.
//!
//! Worker threads read, decode and augment images, and the loader delivers them as batches in GPU
//! memory or host memory.
//!
//! [`Loader`] contains the options. Opening a loader returns [`Batches`], which owns the threads
//! and all batch memory. [`Batches::epoch`] iterates over the batches of an epoch. Batches in host
//! memory are [`HostBatch`]es.
//!
//! # Hello, batch
//!
//! ```
//! use warpfeed::{Augment, Loader};
//!
//! # fn main() -> warpfeed::Result<()> {
//! # std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
//! // The dataset can be a folder, an LMDB, tar shards, ...; the format is detected.
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
//! A `for` loop over the loader itself makes one pass over the data.
//!
//! # Where to go next
//!
//! The documentation of [`Loader`] lists all options by purpose. The
//! [docs](https://github.com/warpfeed/warpfeed/tree/main/docs) folder contains pages with complete
//! programs.
//!
//! | you want to | start at |
//! |---|---|
//! | open a dataset | [`Loader::new`], [`Loader::source`], [`Loader::mixture`], [`source`] |
//! | select samples and their order | [`Loader::shuffle`], [`Loader::split`], [`sampler`] |
//! | crop, resize and change colors | [`Augment`], [`Loader::transform`] |
//! | read boxes, masks, numbers and text | [`Loader::field`], [`field`](mod@field) |
//! | set the images' type and layout | [`Loader::dtype`], [`Loader::layout`], [`Loader::normalize`] |
//! | train on several GPUs | [`Loader::rank`], [`Loader::distributed`] |
//! | resume a run | [`LoaderHandle::checkpoint`], [`Loader::resume`] |
//! | skip bad samples | [`OnError`] |
//! | limit the memory | [`Batches::memory_plan`], [`Loader::memory_limit`] |
//! | find the bottleneck | [`Batches::stats`], [`Stats::verdict`], [`Loader::trace`] |
//! | serve requests of encoded images | [`Decoder::builder`], [`Loader::decoder`] |
//! | add a source, a codec or a field type | [`Source`](source::Source), [`Codec`](decode::Codec), [`FieldType`](field::FieldType) |
#![cfg_attr(feature = "cuda", doc = "| deliver batches in device memory | [`Loader::cuda`], [`cuda`](mod@cuda) |")]
#![cfg_attr(feature = "pack", doc = "| write datasets that load faster | [`pack`] |")]
//!
//! # Batches are reproducible
//!
//! With the same data and options, the sample at a position is a function of (seed, epoch,
//! position). The augmentation of a sample is a function of (seed, epoch, sample). If a sample
//! occurs several times in an epoch, each occurrence is augmented differently. The random numbers
//! for MixUp and CutMix are a function of (seed, epoch, batch). Batches are therefore bit-identical
//! for any number of workers, any prefetch depth and any storage format, on CPU and GPU.
//! [`Batches::epoch_from`] starts at any batch of an epoch in constant time.
//!
//! # Errors name the sample
//!
//! If a sample is bad, the iterator returns an error instead of the whole batch, for example
//! `sample 18231 (n01440764/x): train/n01440764/x.JPEG: decode: jpeg ends at byte 4096 in MCU 61 of
//! 132`. If the program continues to iterate, it receives the next batch. A panic in a custom
//! source, codec or transform becomes an error of the same form. With [`OnError::Skip`], a copy of
//! a different sample of the batch replaces the bad sample, and [`Batches::sample_errors`] lists
//! the error.
//!
//! # Memory and waiting
//!
//! All batch memory is allocated when the loader is opened, and is divided into slots of one batch
//! each. A batch keeps its slot until you drop the batch, and you may keep a batch as long as you
//! like. `next()` waits until a batch is ready. If the consumer is slower than the loader, all
//! slots are full, and workers wait. If your program holds the batches of all slots and requests
//! one more, the request fails after [`Loader::held_batches_timeout`].
//!
//! Dropping the iterator cancels the epoch. Dropping [`Batches`] joins all threads. Batches that
//! you still hold stay valid. Memory that a device is reading is freed once the device has
//! finished.
//!
//! # Logging
//!
//! The library does not print anything. It logs through [`tracing`](https://docs.rs/tracing), for
//! example epochs at level `debug`, downloads and changes to automatic settings at `info`, and
//! skipped samples, damaged images and long waits at `warn`.
//!
//! # Modules
//!
//! The modules follow the path of the data: [`sampler`] selects the next sample, [`source`] reads
//! the bytes of the sample, [`decode`] decodes them to pixels, [`transform`] crops, resizes and
//! augments the pixels, and [`batch`] contains the result.
//!
//! # Cargo features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `cuda` | yes | `Loader::cuda` for batches in device memory, and page-locked host memory. The driver is looked up at run time. Neither building nor running needs a CUDA toolkit. |
//! | `lmdb` | yes | [`source::Lmdb`], and its writer. LMDB is compiled from C. |
//! | `annotations` | yes | [`source::Coco`], [`source::Yolo`] and [`source::Voc`]. |
//! | `tables` | yes | [`source::Table`]: CSV, TSV and JSON lines. |
//! | `formats` | yes | PNG, WebP, BMP, TIFF and GIF images. |
//! | `pack` | yes | The [`pack`] module, which writes datasets. |
//! | `host` | yes | All default features except `cuda`. |
//! | `arrays` | yes | [`source::Arrays`]: NumPy, safetensors and PyTorch; [`source::TfRecord`]. |
//! | `chunks` | yes | MDS, LitData, `.beton` and RecordIO. |
//! | `hdf5` | no | HDF5 files, in [`source::Arrays`]. |
//! | `parquet` | no | `source::Parquet`. Zstandard is compiled from C. |
//! | `video` | no | AV1 videos in MP4 and Matroska files, for `source::LeRobot` and `source::Clips`. |
//! | `nvdec` | no | H.264, HEVC and VP9 videos in MP4 and Matroska files, decoded by an NVIDIA GPU, on Linux. |
//! | `ndarray` | no | `TensorView::array`: a field as an `ndarray` view. |
//! | `nvtx` | no | NVTX ranges for Nsight Systems, with the same names as the spans of a trace. |
//!
//! Without these features, the crate reads folders, tar shards, Arrow files, token files and custom
//! sources, which may contain JPEGs and arrays. Opening a dataset or an image that requires a
//! disabled feature fails, and the error names the feature.

#![cfg_attr(docsrs, feature(doc_cfg))]
// If a default feature is disabled, some helpers are unused.
#![cfg_attr(not(feature = "host"), allow(dead_code))]

pub mod batch;
pub mod decode;
pub mod device;
mod engine;
mod error;
pub mod field;
mod loader;
#[cfg(feature = "pack")]
pub mod pack;
mod recipe;
pub mod sampler;
pub mod source;
pub mod trace;
pub mod transform;

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
    page!(DataFoldersAndTables, "../docs/data-folders-and-tables.md");
    page!(DataShards, "../docs/data-shards.md");
    page!(DataColumns, "../docs/data-columns.md");
    page!(DataArraysAndTokens, "../docs/data-arrays-and-tokens.md");
    page!(DataAnnotations, "../docs/data-annotations.md");
    page!(VideoAndRobots, "../docs/video-and-robots.md");
    page!(ImageFormats, "../docs/image-formats.md");
    page!(ChoosingSamples, "../docs/choosing-samples.md");
    page!(BadSamples, "../docs/bad-samples.md");
    page!(Augmentation, "../docs/augmentation.md");
    page!(MasksAndBoxes, "../docs/masks-and-boxes.md");
    page!(Patches, "../docs/patches.md");
    page!(OnTheGpu, "../docs/on-the-gpu.md");
    page!(SeveralGpus, "../docs/several-gpus.md");
    page!(Resuming, "../docs/resuming.md");
    page!(Serving, "../docs/serving.md");
    page!(Frameworks, "../docs/frameworks.md");
    page!(WhereDoesTheTimeGo, "../docs/where-does-the-time-go.md");
    page!(Packing, "../docs/packing.md");
    page!(ComingFrom, "../docs/coming-from.md");
    page!(Extending, "../docs/extending.md");
    page!(ObjectStores, "../docs/object-stores.md");
    page!(Assistants, "../docs/assistants.md");
}

#[cfg(test)]
#[allow(dead_code)] // other crates use the remaining functions
#[path = "../tests/fuzz/mod.rs"]
mod fuzz;

#[cfg(test)]
#[path = "../tests/libjpeg/mod.rs"]
mod libjpeg;
#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
#[path = "../tests/support/process.rs"]
mod process;
#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
#[path = "../tests/support/scheduler/mod.rs"]
mod scheduler;

#[cfg(test)]
#[path = "../tests/support/require.rs"]
mod require;

#[cfg(test)]
#[path = "../tests/support/warnings.rs"]
mod warnings;

#[cfg(test)]
#[path = "../tests/support/generated_files.rs"]
mod generated_files;

pub use batch::{BatchInfo, Dtype, HostBatch, Layout, Normalize, TensorView};
pub use decode::{AnnotationFrame, CacheFormat};
#[cfg(feature = "cuda")]
pub use device::CudaBatch;
#[cfg(feature = "cuda")]
#[doc(inline)]
pub use device::nvidia as cuda;
pub use engine::{Batches, Checkpoint, DecodeOn, Decoder, DynamicBatch, DynamicBatcher, Epoch, IntoIter, SampleError};
pub use engine::{LoaderHandle, MemoryPlan, OnError, Pending, Replay};
pub use error::{Error, ErrorKind, Result};
pub use loader::{DecoderBuilder, Loader};
pub use sampler::{LastBatch, Rank};
pub use source::Dataset;
pub use trace::{Stats, Verdict};
pub use transform::Augment;
#[doc(inline)]
pub use warpfeed_sources::format;
