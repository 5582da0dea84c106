//! The native part of the Python package `warpfeed`. Users see `warpfeed/__init__.py`.
//!
//! 1. `options`: keyword arguments become a [`warpfeed::Loader`]; `augment`, `value`:
//!    values of these; `source`: a dataset or a Python object becomes a source; `buffer`: bytes
//!    and arrays; `order`: a function becomes an order; `function`: a function on each image, in
//!    worker processes.
//! 2. `core`: an open loader; `batch`: what it delivers; `tensor`: one field of it, shared through
//!    DLPack. `stored`: one sample of its dataset. `decoder`: one batch for each request, and
//!    `joined`: for several; `answer`: a batch that may not be ready yet. `either`: each of these in
//!    host memory or on a device; `gpu`: the only file that names its vendor.
//! 3. `error`: errors become `warpfeed.WarpfeedError`; `log`: messages go to `logging`; `option_names`:
//!    both use Python's names.
//! 4. `waiting`: waits that signals interrupt; `wake`: answers wake event loops; `lending`: batches
//!    that are copied; `traced` and `thread_state`: Python objects and threads of the interpreter.
//! 5. `stats`: reports of statistics, and the program's own spans; `pack`: packs a dataset.
//! 6. `program`: the command line, and functions that need no loader.

mod answer;
mod augment;
mod batch;
mod buffer;
mod core;
mod decoder;
mod either;
mod error;
mod function;
mod gpu;
mod joined;
mod lending;
mod log;
mod option_names;
mod options;
mod order;
mod pack;
mod program;
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

/// The module `warpfeed._warpfeed`. It does not need the interpreter's lock: shared state is
/// frozen, atomic or behind a mutex, and a [`stats::Span`] refuses other threads.
#[pyo3::pymodule(gil_used = false)]
mod _warpfeed {
    #[pymodule_export]
    use super::answer::Answer;
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::core::Core;
    #[pymodule_export]
    use super::decoder::DecoderCore;
    #[pymodule_export]
    use super::function::Function;
    #[pymodule_export]
    use super::joined::JoinedCore;
    #[pymodule_export]
    use super::log::{drain_log, start_log};
    #[pymodule_export]
    use super::options::options;
    #[pymodule_export]
    use super::pack::{merge, pack, pack_progress, part_from_env};
    #[pymodule_export]
    use super::program::{in_python, labels, rank_from_env, run_program, split, version};
    #[pymodule_export]
    use super::stats::{Span, report, stats_since, verdict_of};
    #[pymodule_export]
    use super::tensor::Tensor;
    #[pymodule_export]
    use super::waiting::wait_for_calls;
}
