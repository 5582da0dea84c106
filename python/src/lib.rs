//! The native part of the Python package `warpfeed`. `warpfeed/__init__.py` is what users see.
//!
//! 1. `options`: keyword arguments become a [`warpfeed::Loader`]; `source`: a Python object becomes
//!    a source.
//! 2. `core`: an open loader; `batch`: what it delivers; `tensor`: one field of it, shared through
//!    DLPack.
//! 3. `error`: errors become `warpfeed.WarpfeedError`; `log`: messages become those of `logging`.
//! 4. `program`: the command line, and what needs no loader.

mod batch;
mod core;
mod error;
mod log;
mod options;
mod program;
mod source;
#[allow(unsafe_code)]
mod tensor;

/// The module `warpfeed._warpfeed`.
#[pyo3::pymodule]
mod _warpfeed {
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::core::Core;
    #[pymodule_export]
    use super::log::{drain_log, start_log};
    #[pymodule_export]
    use super::program::{rank_from_env, run_program, split, version};
    #[pymodule_export]
    use super::tensor::Tensor;
}
