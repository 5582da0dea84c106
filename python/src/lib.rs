//! The extension module of the Python package `warpfeed`. The public interface is
//! `warpfeed/__init__.py`.
//!
//! 1. `options` converts keyword arguments to a [`warpfeed::Loader`]; `augment` and `value` convert
//!    their values. `source` opens datasets and reads Python objects as samples; `buffer` reads
//!    bytes and arrays. `order` uses a Python function as a sampler, and `function` runs a
//!    per-image function in worker processes.
//! 2. `core` is an open loader, `batch` is one of its batches, and `tensor` is a field of a batch,
//!    shared through DLPack. `stored` is a sample without augmentation, or one image without a
//!    loader. `decoder` decodes one batch per request, `dynamic_batcher` combines requests into
//!    batches, and `response` is a response that may not be ready yet. `either` defines types with
//!    variants for host batches and for device batches. `gpu` defines the device types and opens
//!    streams.
//! 3. `error` converts errors to `warpfeed.WarpfeedError`, and `log` passes messages to `logging`.
//!    Both use `option_names` to translate messages to Python spelling.
//! 4. `waiting` implements waits that signals can interrupt, and `wake` wakes event loops when a
//!    response is ready. `lending` decides which batches are copied. `traced` makes references to
//!    Python objects visible to the garbage collector, and `thread_state` keeps the interpreter's
//!    thread states.
//! 5. `stats` reports statistics and records the user's own spans. `pack` packs a dataset.
//! 6. `program` contains the command-line tool and functions that do not need a loader.

mod augment;
mod batch;
mod buffer;
mod core;
mod decoder;
mod dynamic_batcher;
mod either;
mod error;
mod function;
mod gpu;
mod lending;
mod log;
mod option_names;
mod options;
mod order;
mod pack;
mod program;
mod response;
mod source;
mod stats;
mod stored;
#[allow(unsafe_code)]
mod tensor;
#[allow(unsafe_code)]
mod thread_state;
mod traced;
mod value;
mod waiting;
mod wake;

/// The `warpfeed._warpfeed` module. It does not rely on the GIL: shared state is immutable, atomic
/// or protected by a mutex, and only the thread that created a [`stats::Span`] may call it.
#[pyo3::pymodule(gil_used = false)]
mod _warpfeed {
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::core::Core;
    #[pymodule_export]
    use super::decoder::DecoderCore;
    #[pymodule_export]
    use super::dynamic_batcher::DynamicBatcherCore;
    #[pymodule_export]
    use super::function::Function;
    #[pymodule_export]
    use super::log::{drain_log, start_log};
    #[pymodule_export]
    use super::options::options;
    #[pymodule_export]
    use super::pack::{merge, pack, pack_progress, part_from_env};
    #[pymodule_export]
    use super::program::{image_sizes, in_python, labels, rank_from_env, run_program, split, version};
    #[pymodule_export]
    use super::response::PendingResponse;
    #[pymodule_export]
    use super::source::{lerobot_episodes, lerobot_stats};
    #[pymodule_export]
    use super::stats::{Span, report, stats_since, verdict_of};
    #[pymodule_export]
    use super::stored::decode_image;
    #[pymodule_export]
    use super::tensor::Tensor;
    #[pymodule_export]
    use super::waiting::wait_for_calls;
}
